#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/cores.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"
#include "tests/failure.h"
#include "tests/opens.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::launcher {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

class Plan : public testing::Test {
 protected:
  // The printed plan for this many ranks. Its JSON is then in json_.
  std::string planned(int ranks, std::optional<int> ranks_per_node, std::vector<std::string> sets = {}) {
    PlanOptions options;
    options.ranks = ranks;
    options.ranks_per_node = ranks_per_node;
    options.sets = {model_, "data.seq_len=16", "device.kind=cpu"};
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    options.json = folder_.path() / "plan.json";
    options.machine = machine_;
    options.html = html_;
    options.stages = stages_;
    options.verbose = verbose_;
    options.max_batch = max_batch_;
    options.table = table_;
    std::fflush(stdout);
    testing::internal::CaptureStdout();
    int status = 0;
    try {
      status = plan(options);
    } catch (const Error&) {
      (void)testing::internal::GetCapturedStdout();
      throw;
    }
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, status_) << text;
    json_ = folder_.read("plan.json");
    return text;
  }
  // What a plan that does not fit says on stderr; what it prints is then in printed_.
  std::string refused(int ranks, std::vector<std::string> sets) {
    status_ = static_cast<int>(Exit::does_not_fit);
    testing::internal::CaptureStderr();
    try {
      printed_ = planned(ranks, ranks, std::move(sets));
    } catch (...) {
      (void)testing::internal::GetCapturedStderr();
      throw;
    }
    return testing::internal::GetCapturedStderr();
  }
  double number(const std::string& key) const {
    const auto at = json_.find("\"" + key + "\":");
    EXPECT_NE(at, std::string::npos) << key << " in " << json_;
    return at == std::string::npos ? 0 : std::strtod(json_.c_str() + at + key.size() + 3, nullptr);
  }
  double device_capacity() const {
    const std::string key = "\"capacity_bytes\":{\"device\":";
    const auto at = json_.find(key);
    EXPECT_NE(at, std::string::npos) << json_;
    return at == std::string::npos ? 0 : std::strtod(json_.c_str() + at + key.size(), nullptr);
  }
  // A machine of 8 cores.
  void measured_by(int ranks, std::optional<double> spread = std::nullopt) {
    runtime::Machine m = runtime::even_machine();
    m.processor = "none";
    m.ranks = ranks;
    m.spread = spread;
    m.threads = 8 / ranks;
    if (ranks > 1) m.collectives = {10, 5};
    machine_ = folder_.write("machine.toml", runtime::machine_toml(m));
  }

  tests::ScratchFolder folder_;
  std::optional<std::filesystem::path> machine_, html_;
  bool stages_ = false, verbose_ = false, max_batch_ = false;
  bool table_ = false;
  std::string model_ = "model.preset=tiny-gpt2";
  int status_ = 0;  // that plan() is to return
  std::string json_, printed_;
};

// Ranks share a machine as under `mpirun -n 4 strata train`.
TEST_F(Plan, RanksOfOneMachineShareItsMemory) {
  EXPECT_THAT(planned(4, 1), HasSubstr("capacity: 4 ranks on 4 machines like this one, 1 on each (--ranks-per-node), "
                                       "each with its part of\n  the free memory\n"));
  const double alone = device_capacity();
  EXPECT_THAT(planned(4, 4), HasSubstr("capacity: 4 ranks on one machine like this one (--ranks-per-node), each with"));
  EXPECT_NEAR(device_capacity() / alone, 0.25, 0.1) << "what is free changes from moment to moment";
  EXPECT_EQ(number("ranks_per_node"), 4);
  EXPECT_THAT(planned(3, 2), HasSubstr("3 ranks on 2 machines like this one, up to 2 on each"));
  EXPECT_THAT(planned(2, 8), HasSubstr("2 ranks on one machine")) << "no more than there are";
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

TEST_F(Plan, APredictionForOtherRanksThanMeasuredSaysHowItWasMade) {
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

TEST_F(Plan, TaskCountsAreForThoseWhoAsk) {
  EXPECT_THAT(planned(1, {}), AllOf(Not(HasSubstr("tasks per step")), HasSubstr("RAM (device)"),
                                    HasSubstr("add up to more than the peak")));
  verbose_ = true;
  EXPECT_THAT(planned(1, {}), HasSubstr(" tasks per step: "));
}

// With --max-batch the plan is for that batch. With auto it is for the batch that a run would choose.
TEST_F(Plan, TheLargestMicroBatch) {
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
  EXPECT_THAT(planned(1, {}, sets), HasSubstr("fastest per token, as predicted: "));
}

TEST_F(Plan, StagesBesideEachOtherAndWhatThePaperCounts) {
  stages_ = true;
  const std::string text = planned(4, 4, {"zero.stage=2"});
  for (const char* stage : {"ZeRO-0 ", "ZeRO-1 ", "ZeRO-2 ", "ZeRO-3 "}) EXPECT_THAT(text, HasSubstr(stage));
  for (const char* note : {"[0] Of all tiers together", "[1] Gradients are summed in fp32",
                           "[2] At stage 3 a rank's shard", "[3] Activations"})
    EXPECT_THAT(text, HasSubstr(note));
  EXPECT_THAT(json_, AllOf(HasSubstr("\"stages\":[{\"stage\":0,"), HasSubstr("{\"stage\":3,")));
  EXPECT_THAT(text, Not(HasSubstr("a step  order\n"))) << "one micro-batch has none";
  EXPECT_THAT(planned(4, 4, {"zero.stage=2", "training.gradient_accumulation_steps=4"}),
              AllOf(HasSubstr("a step  order\n"), HasSubstr("- horiz.\n")));
  EXPECT_THAT(json_, HasSubstr("{\"stage\":2,\"order\":\"horizontal\","));
  // 16 bytes per parameter at stage 0, shared out over 4 ranks at stage 3.
  const double parameters = number("parameters");
  EXPECT_THAT(text, HasSubstr(bytes_text(static_cast<std::size_t>(16 * parameters))));
  EXPECT_THAT(text, HasSubstr(bytes_text(static_cast<std::size_t>(4 * parameters))));
}

// State sharded within each node next to state sharded over all ranks, and the traffic between nodes in each case.
TEST_F(Plan, NodesAndGroupsOfTheirRanks) {
  const auto crossing = [&] { return number("between_nodes"); };
  const auto unfolded = [&](int ranks, int ranks_per_node, const std::vector<std::string>& sets) {
    std::string text = planned(ranks, ranks_per_node, sets);
    for (auto at = text.find("\n  "); at != text.npos; at = text.find("\n  ")) text.replace(at, 3, " ");
    return text;
  };
  EXPECT_THAT(unfolded(4, 4, {"zero.stage=3"}), Not(HasSubstr("to other nodes")));
  EXPECT_EQ(crossing(), 0);
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=3"}), AllOf(HasSubstr(" of it in its node of 2 ranks and "),
                                                      HasSubstr(" to other nodes\n"), Not(HasSubstr("in groups"))));
  const double flat = crossing();
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=3", "zero.parameters_group=node"}),
              HasSubstr("in groups: 2 copies of the parameters, each over 2 ranks\n"));
  EXPECT_LT(crossing(), flat);
  EXPECT_THAT(json_, HasSubstr("\"mesh\":{\"data\":4,\"tensor\":1,\"stages\":1,\"node\":2}"));
  EXPECT_THAT(
      planned(4, 2, {"zero.stage=3", "zero.gradients_group=2"}),
      HasSubstr("in groups: 2 copies of the parameters, each over 2 ranks; 2 copies of the sums of gradients, "));
  EXPECT_FAILURE((void)planned(3, 2, {"zero.stage=3", "zero.parameters_group=node"}), Exit::usage,
                 HasSubstr("but these have 2 and 1 ranks"));
  stages_ = true;
  EXPECT_THAT(unfolded(4, 2, {"zero.stage=2"}), AllOf(HasSubstr("ZeRO-3 [4] "), HasSubstr("ZeRO-3 [5] "),
                                                      HasSubstr("[4] zero.parameters_group = \"node\"")));
  EXPECT_THAT(json_, HasSubstr("{\"stage\":3,\"zero.parameters_group\":\"node\",\"order\":"));
  EXPECT_THAT(unfolded(4, 4, {"zero.stage=2"}), Not(HasSubstr("[4]")));
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

// Both capacities are right, but they are the same memory.
TEST_F(Plan, HostMemoryOfACpuIsNoMemoryBesideItsOwn) {
  EXPECT_THAT(planned(1, 1, {"zero.optimizer=host"}), HasSubstr("RAM (device) and host are the same memory: "));
  EXPECT_THAT(planned(1, 1, {"zero.optimizer=host", "memory.device=64MiB", "memory.host=64MiB"}),
              Not(HasSubstr("the same memory")));
  EXPECT_THAT(planned(1, 1), Not(HasSubstr("the same memory"))) << "nothing is in the second one";
}

// The largest figures, those of one rank, do not touch their neighbours.
TEST_F(Plan, ColumnsOfStagesDoNotRunTogether) {
  stages_ = true;
  const std::string text =
      planned(1, 1, {"model.preset=llama-1b", "model.config.num_hidden_layers=1200", "memory.device=99999GiB"});
  const std::size_t at = text.find("\nZeRO-0 ");
  ASSERT_NE(at, std::string::npos);
  const std::string row = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  EXPECT_THAT(row, testing::Not(testing::ContainsRegex("[a-zA-Z][0-9]"))) << row;
}

// Even if the program cannot use a GPU.
TEST_F(Plan, AMachineFromDataSheetsGivesATimeOfAGpu) {
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
  // At least the time of the GPU's products: 6 operations per parameter and token, at the file's speed.
  EXPECT_GT(times[3], 6 * number("parameters") * 512 / 643.11e12 * 1e3 * 0.8);
  for (const char* name : {"rtx4090", "h100-1tb-nvme"}) {
    machine_ = machines / (std::string(name) + ".toml");
    EXPECT_THAT(planned(1, std::nullopt, {"device.kind=auto", "model.preset=gpt2-124m", "data.seq_len=512"}),
                HasSubstr("from data sheets"));
  }
  EXPECT_FAILURE((void)planned(1, std::nullopt), Exit::usage, HasSubstr("speeds of a GPU"));
}

// The table of a GPU that this machine lacks; nothing runs.
TEST_F(Plan, ATableHasEverySetting) {
  table_ = true;
  machine_ = tests::source_dir() / "examples/machines/a100-40gb-x8.toml";
  const auto rows = [&](const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = text.find("precision  recompute"); (at = text.find("\nZeRO-", at)) != text.npos; ++at)
      out.push_back(text.substr(at + 1, text.find('\n', at + 1) - at - 1));
    return out;
  };
  const std::vector<std::string> sets = {"device.kind=auto", "model.preset=gpt2-124m", "data.seq_len=512",
                                         "training.gradient_accumulation_steps=2"};
  const std::string eight = planned(8, 8, sets);
  EXPECT_EQ(rows(eight).size(), 4u * 3 * 3) << eight;
  EXPECT_THAT(rows(eight).at(0), AllOf(HasSubstr("fp32"), HasSubstr("none"), HasSubstr("iB"), HasSubstr("tokens/s")));
  EXPECT_THAT(json_, HasSubstr("\"table\":[{\"stage\":0,\"precision\":\"fp32\",\"recompute\":\"none\",\"order\":"));
  machine_.reset();
  const std::string one = planned(1, 1, {"memory.device=1GiB"});
  EXPECT_EQ(rows(one).size(), 9u) << one;
  EXPECT_THAT(rows(one).at(0), Not(HasSubstr("tokens/s")));
}

// The recipe's own setting is one of the rows.
TEST_F(Plan, ATableHasTheRecipesOwnBlocks) {
  table_ = true;
  const std::string few = planned(1, 1, {"training.recompute=[0]", "model.config.n_layer=2"});
  for (const char* precision : {"fp32", "bf16", "fp16"})
    EXPECT_THAT(few, testing::ContainsRegex(std::string("ZeRO-0 +") + precision + " +\\[0\\] +horizontal"));
  EXPECT_THAT(few, testing::ContainsRegex("ZeRO-0 +fp32 +block +horizontal"));
  EXPECT_THAT(json_, HasSubstr("\"precision\":\"bf16\",\"recompute\":[0],\"order\":"));
  EXPECT_THAT(json_, HasSubstr("\"precision\":\"bf16\",\"recompute\":\"sqrt\",\"order\":"));
  const std::string many =
      planned(1, 1, {"training.recompute=[0,1,2,3,4,5,6,7,8]", "model.config.n_layer=10", "model.config.n_embd=64"});
  EXPECT_THAT(many, testing::ContainsRegex("ZeRO-0 +bf16 +9 blocks +horizontal"));
  EXPECT_THAT(json_, HasSubstr("\"recompute\":[0,1,2,3,4,5,6,7,8],"));
  EXPECT_THAT(planned(1, 1, {"training.recompute=sqrt"}), Not(HasSubstr("blocks  ")));
}

// Dozens of plans, of one model.
TEST_F(Plan, TheModelIsOpenedOnce) {
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

// A width that is given carries those that are derived from it.
TEST_F(Plan, WidthsOfAPresetFollow) {
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

TEST_F(Plan, ADriveThatIsNotThereIsSaid) {
  testing::internal::CaptureStderr();
  (void)planned(1, 1, {"memory.nvme=/none/at/all", "zero.optimizer=nvme", "memory.device=1GiB"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("memory.nvme: there is no folder /none/at/all; a plan needs none, train does"));
}

// train refuses it before it opens a file.
TEST_F(Plan, AnOpenControlPortIsRefused) {
  EXPECT_FAILURE(planned(1, 1, {"control.listen=0.0.0.0:7000"}), Exit::usage, HasSubstr("lets other machines control"));
}

TEST_F(Plan, SaysHowManyVirtualShardsHold) {
  testing::internal::CaptureStderr();
  (void)planned(1, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("parallel.tensor_shards = 1: "));
  testing::internal::CaptureStderr();
  (void)planned(2, 2, {"parallel.tensor=2"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("parallel.tensor_shards = 2: "));
}

// The JSON's memory_rank.
TEST_F(Plan, OfAPipelineTheTableNamesItsRank) {
  model_ = "model.preset=tiny-llama";
  EXPECT_THAT(planned(2, 2), HasSubstr("\na rank's "));
  const std::string text = planned(4, 4, {"parallel.stages=2"});
  const int rank = static_cast<int>(number("memory_rank"));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nrank {}'s (stage {}) ", rank, rank / 2)));
}

TEST_F(Plan, APageHasAllStages) {
  html_ = folder_.path() / "plan.html";
  (void)planned(2, 2, {"zero.stage=3"});
  const std::string page = folder_.read("plan.html");
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_THAT(page, HasSubstr("\"ranks\":2,\"data_ranks\":2,\"stage\":" + std::to_string(stage) + ","));
}

// A search for what fits plans fewer micro-batches, but as many as the schedule needs.
TEST_F(Plan, AnInterleavedRecipeThatDoesNotFitIsRefusedAsAnyOther) {
  model_ = "model.preset=tiny-llama";
  const std::string said = refused(4, {"model.config.num_hidden_layers=6", "model.config.tie_word_embeddings=false",
                                       "parallel.stages=4", "parallel.chunks=2", "parallel.schedule=interleaved",
                                       "training.gradient_accumulation_steps=8", "memory.device=1MiB"});
  EXPECT_THAT(said, HasSubstr(fmt::format("({:.0f} bytes) of RAM", number("planned_peak_bytes")))) << "of the largest";
}

// The last stage has the head, and the most on the device; the first one keeps its optimizer's state on the host.
TEST_F(Plan, OfAPipelineTheStageThatDoesNotFitIsRefusedAndTablesShowTheLargest) {
  model_ = "model.preset=tiny-llama";
  const std::vector<std::string> sets = {"model.config.vocab_size=4000",
                                         "model.config.num_hidden_layers=3",
                                         "model.config.tie_word_embeddings=false",
                                         "data.seq_len=32",
                                         "training.micro_batch_size=48",
                                         "parallel.stages=2",
                                         "parallel.split=[2, 1]",
                                         "zero.stage=1",
                                         "training.recompute=block"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sets.begin(), sets.end());
    return more;
  };
  // Stage 0 needs 14.5 MiB on the host, and stage 1 11.1 MiB.
  EXPECT_THAT(refused(2, with({"zero.optimizer=host", "memory.host=12MiB"})),
              AllOf(HasSubstr("14.5 MiB"), HasSubstr("of host memory and memory.host is 12.0 MiB")));
  stages_ = table_ = true;
  (void)refused(2, with({"memory.device=30MiB"}));
  EXPECT_THAT(printed_, testing::ContainsRegex("ZeRO-1 +bf16 +block +horizontal +[34][0-9.]+ MiB +no"));
  EXPECT_THAT(printed_, testing::ContainsRegex("ZeRO-1 +[34][0-9.]+ MiB +no"));
}

}  // namespace
}  // namespace strata::launcher
