#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/rank/cores.h"
#include "tests/failure.h"
#include "tests/launcher/commands/plan/printed_plan.h"
#include "tests/opens.h"
#include "tests/source_dir.h"

namespace strata::launcher {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

// Ranks share a machine, as under `mpirun -n 4 strata train`.
TEST_F(Plan, RanksOnOneMachineShareItsMemory) {
  EXPECT_THAT(planned(4, 1), HasSubstr("capacity: 4 ranks on 4 machines like this one, 1 on each (--ranks-per-node), "
                                       "each with its part of\n  the free memory\n"));
  const double alone = device_capacity();
  EXPECT_THAT(planned(4, 4), HasSubstr("capacity: 4 ranks on one machine like this one (--ranks-per-node), each with"));
  EXPECT_NEAR(device_capacity() / alone, 0.25, 0.1) << "free memory changes constantly";
  EXPECT_EQ(number("ranks_per_node"), 4);
  EXPECT_THAT(planned(3, 2), HasSubstr("3 ranks on 2 machines like this one, up to 2 on each"));
  EXPECT_THAT(planned(2, 8), HasSubstr("2 ranks on one machine")) << "no more than exist";
  EXPECT_EQ(number("ranks_per_node"), 2);
  EXPECT_THAT(planned(2, 2, {"memory.device=1GiB", "memory.host=1GiB"}), HasSubstr("with the memory of memory.device"));
}

TEST_F(Plan, AMachineHasAsManyRanksAsCores) {
  (void)planned(1 << 10, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), cores_here());
  (void)planned(1, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), 1);
  measured_by(4);  // of 8 cores
  (void)planned(1 << 10, std::nullopt);
  EXPECT_EQ(number("ranks_per_node"), 8) << "those of the machine file";
}

TEST_F(Plan, APredictionForAnotherNumberOfRanksSaysHowItWasScaled) {
  measured_by(2);
  EXPECT_THAT(planned(2, 2), AllOf(HasSubstr("predicted: "), Not(HasSubstr("speeds of"))));
  EXPECT_THAT(json_, AllOf(HasSubstr("\"measured_ranks\":2"), HasSubstr("\"scaling\":null")));
  EXPECT_THAT(json_, HasSubstr("\"spread\":null"));
  measured_by(2, 0.42);
  EXPECT_THAT(planned(2, 2), HasSubstr(" tokens/s (from speeds measured with a spread of +-42%)\n"));
  EXPECT_THAT(json_, HasSubstr("\"spread\":0.420"));
  const double two = number("step_ms");
  EXPECT_THAT(planned(8, std::nullopt), HasSubstr("speeds of 2 ranks on the machine, scaled to 8 ranks: "));
  EXPECT_THAT(json_, HasSubstr("\"scaling\":\"speeds of 2 ranks"));
  EXPECT_GT(number("step_ms"), two) << "each has a quarter of the cores";
  EXPECT_THAT(planned(8, 2), HasSubstr("collectives between machines are assumed to be as fast as within one"));
  measured_by(1);
  EXPECT_THAT(planned(1, std::nullopt), Not(HasSubstr("speeds of")));
  EXPECT_FAILURE((void)planned(8, std::nullopt), Exit::usage, HasSubstr("mpirun -n 8 strata calibrate"));
}

TEST_F(Plan, TaskCountsNeedVerbose) {
  EXPECT_THAT(planned(1, {}), AllOf(Not(HasSubstr("tasks per step")), HasSubstr("RAM (device)"),
                                    HasSubstr("add up to more than the peak")));
  verbose_ = true;
  EXPECT_THAT(planned(1, {}), HasSubstr(" tasks per step: "));
}

// With --max-batch the plan is for the largest batch, and with auto for the batch that a run would choose.
TEST_F(Plan, PlansTheLargestMicroBatch) {
  const std::vector<std::string> sets = {"memory.device=24MiB", "training.micro_batch_size=1"};
  EXPECT_THAT(planned(1, {}, sets), Not(HasSubstr("largest micro-batch")));
  EXPECT_EQ(number("micro_batch_size"), 1);
  max_batch_ = true;
  const std::string text = planned(1, {}, sets);
  const auto size = static_cast<int>(number("micro_batch_size"));
  EXPECT_GT(size, 1);
  EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("1 micro-batch of {} x 16 tokens", size)),
                          HasSubstr(fmt::format("largest micro-batch that fits: {} (", size))));
  EXPECT_THAT(json_, HasSubstr(fmt::format("\"max_batch\":{{\"size\":{},", size)));
  max_batch_ = false;
  (void)planned(1, {}, {sets[0], "training.micro_batch_size=auto"});
  EXPECT_EQ(number("micro_batch_size"), size);
  measured_by(1);
  max_batch_ = true;
  EXPECT_THAT(planned(1, {}, sets), HasSubstr("predicted fastest per token: "));
}

// Text that is too long for a line is wrapped, and columns with many digits move closer together.
TEST_F(Plan, NoLineHasMoreThan100Columns) {
  stages_ = verbose_ = true;
  const std::vector<std::string> large = {"model.preset=llama-8b",
                                          "model.config.hidden_size=8192",
                                          "data.seq_len=4096",
                                          "model.config.num_attention_heads=64",
                                          "memory.device=69GiB",
                                          "memory.host=220GiB",
                                          "zero.optimizer=host",
                                          "model.config.num_hidden_layers=80",
                                          "zero.stage=3",
                                          "training.recompute=block",
                                          "model.config.intermediate_size=28672"};
  for (const std::string& text : {planned(512, 8, large), planned(2, 2), planned(1, 1)})
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      EXPECT_LE(end - at, 100u) << text.substr(at, end - at);
      at = end + 1;
    }
}

// Both capacities are correct, but they describe the same memory.
TEST_F(Plan, DeviceAndHostShareTheMemoryOfACpu) {
  EXPECT_THAT(planned(1, 1, {"zero.optimizer=host"}), HasSubstr("RAM (device) and host are the same memory: "));
  EXPECT_THAT(planned(1, 1, {"zero.optimizer=host", "memory.device=64MiB", "memory.host=64MiB"}),
              Not(HasSubstr("the same memory")));
  EXPECT_THAT(planned(1, 1), Not(HasSubstr("the same memory"))) << "the second one is empty";
}

// This works even if the program cannot use a GPU.
TEST_F(Plan, AMachineFromDataSheetsPredictsGpuTime) {
  const std::filesystem::path machines = tests::source_dir() / "examples/machines";
  std::vector<double> times;
  for (const char* name : {"v100-32gb-x16", "a100-40gb-x8", "a100-80gb-x8", "h100-x8", "h200-x8"}) {
    machine_ = machines / (std::string(name) + ".toml");
    const std::string text =
        planned(8, std::nullopt, {"device.kind=auto", "model.preset=llama-1b", "zero.stage=3", "data.seq_len=512"});
    EXPECT_THAT(text, AllOf(HasSubstr("(computed from data sheets, not measured)"), Not(HasSubstr("RAM (device)"))));
    times.push_back(number("step_ms"));
  }
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end(), std::greater<>())) << testing::PrintToString(times);
  EXPECT_EQ(number("ranks_per_node"), 8);
  // The time is at least that of the GPU's products: 6 operations per parameter and token, at the file's speed.
  EXPECT_GT(times[3], 6 * number("parameters") * 512 / 643.11e12 * 1e3 * 0.8);
  for (const char* name : {"rtx4090", "h100-1tb-nvme"}) {
    machine_ = machines / (std::string(name) + ".toml");
    EXPECT_THAT(planned(1, std::nullopt, {"device.kind=auto", "model.preset=gpt2-124m", "data.seq_len=512"}),
                HasSubstr("from data sheets"));
  }
  EXPECT_FAILURE((void)planned(1, std::nullopt), Exit::usage, HasSubstr("speeds of a GPU"));
}

// The command makes dozens of plans of one model.
TEST_F(Plan, OpensTheModelOnce) {
  const auto config = folder_.write(
      "m/config.json",
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 32, "vocab_size": 130})");
  model_ = "model.path=" + config.parent_path().string();
  stages_ = table_ = max_batch_ = true;
  measured_by(2);
  html_ = folder_.path() / "plan.html";
  tests::Opens opens(config);
  EXPECT_THAT(planned(2, 2, {"model.init=random", "training.recompute=block", "memory.device=1GiB"}),
              AllOf(HasSubstr("ZeRO-3"), HasSubstr("predicted: ")));
  EXPECT_EQ(opens.count(), 1);
}

// Other widths are derived from a given width.
TEST_F(Plan, DerivesWidthsFromAGivenWidth) {
  (void)planned(1, 1, {"model.config.n_embd=256", "model.config.n_layer=2"});
  const double d = 256;
  EXPECT_EQ(number("parameters"), 512 * d + 1024 * d + 2 * (12 * d * d + 13 * d) + 2 * d);
  (void)planned(1, 1, {"model.config.n_embd=256", "model.config.n_layer=2", "model.config.n_inner=512"});
  EXPECT_EQ(number("parameters"), 512 * d + 1024 * d + 2 * (8 * d * d + 4 * d + 6 * d + 512) + 2 * d - 2 * d);
  (void)planned(1, 1, {"model.preset=tiny-llama", "model.config.hidden_size=256"});
  const double wide = number("parameters");
  (void)planned(1, 1, {"model.preset=tiny-llama", "model.config.hidden_size=256", "model.config.head_dim=64"});
  EXPECT_EQ(number("parameters"), wide);
}

TEST_F(Plan, ReportsAMissingDrive) {
  testing::internal::CaptureStderr();
  (void)planned(1, 1, {"memory.nvme=/none/at/all", "zero.optimizer=nvme", "memory.device=1GiB"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("memory.nvme: there is no folder /none/at/all; only train needs it, not plan"));
}

// train refuses the port before it opens a file.
TEST_F(Plan, RefusesAnOpenControlPort) {
  EXPECT_FAILURE(planned(1, 1, {"control.listen=0.0.0.0:7000"}), Exit::usage, HasSubstr("lets other machines control"));
}

// As train does, with the same sentences.
TEST_F(Plan, RefusesEvaluationsThatLackSomething) {
  EXPECT_FAILURE(planned(1, 1, {"evaluation.every=1"}), Exit::usage,
                 HasSubstr("evaluation.every requests evaluations while training, but data.validation is missing"));
  EXPECT_FAILURE(planned(1, 1, {"evaluation.patience=2"}), Exit::usage,
                 HasSubstr("evaluation.patience counts evaluations, but evaluation.every is 0"));
  EXPECT_FAILURE(planned(1, 1, {"checkpoint.keep_best=true"}), Exit::usage,
                 HasSubstr("checkpoint.keep_best keeps what evaluations find best, but evaluation.every is 0"));
  const std::string file = (folder_.path() / "later.bin").string();
  testing::internal::CaptureStderr();
  (void)planned(1, 1, {"evaluation.every=1", "data.validation=" + file});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("data.validation: no file matches " + file));
}

TEST_F(Plan, StatesTheNumberOfVirtualShards) {
  EXPECT_THAT(planned(1, 1), HasSubstr("\nparallel.tensor_shards = 1: "));
  EXPECT_THAT(planned(4, 4, {"parallel.tensor=4"}),
              HasSubstr("\nparallel.tensor_shards = 4: the bits are the same for parallel.tensor = 1, 2 or 4\n"));
}

// Reads memory_rank from the JSON.
TEST_F(Plan, APipelinesTableNamesItsRank) {
  model_ = "model.preset=tiny-llama";
  EXPECT_THAT(planned(2, 2), HasSubstr("\na rank's "));
  const std::string text = planned(4, 4, {"parallel.stages=2"});
  const int rank = static_cast<int>(number("memory_rank"));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nrank {}'s (stage {}) ", rank, rank / 2)));
  rank_ = 1;
  EXPECT_THAT(planned(2, 2), HasSubstr("\nrank 1's "));
  EXPECT_EQ(number("memory_rank"), 1);
}

// A search for what fits plans fewer micro-batches, but as many as the schedule needs.
TEST_F(Plan, RefusesAnInterleavedRecipeThatDoesNotFit) {
  model_ = "model.preset=tiny-llama";
  const std::string said = refused(4, {"model.config.num_hidden_layers=6", "model.config.tie_word_embeddings=false",
                                       "parallel.stages=4", "parallel.chunks=2", "parallel.schedule=interleaved",
                                       "training.gradient_accumulation_steps=8", "memory.device=1MiB"});
  EXPECT_THAT(said, HasSubstr(fmt::format("({:.0f} bytes) of RAM", number("planned_peak_bytes")))) << "of the largest";
}

}  // namespace
}  // namespace strata::launcher
