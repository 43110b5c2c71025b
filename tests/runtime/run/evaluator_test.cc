#include "runtime/run/evaluator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/plan/proof/proof.h"
#include "runtime/planner/planner.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

struct Evaluated {
  std::string loss_hex;
  double loss = 0;
  std::uint64_t labels = 0;
  bool memory_as_planned = false;
};

class EvaluatorTest : public testing::Test {
 protected:
  std::string tokens(const std::string& name, int begin, int end) {
    std::string bytes;
    for (int i = begin; i < end; ++i) bytes += {static_cast<char>((i * i * 7 + i / 5) % 97), '\0'};
    return folder_.write(name, bytes).string();
  }
  // Dropout of the recipe must not reach an evaluation.
  std::vector<std::string> sets(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"model.preset=tiny-gpt2",       "model.config.n_layer=3",
                                    "model.config.n_embd=32",       "model.config.n_head=2",
                                    "model.config.vocab_size=8300", "model.config.n_positions=16",
                                    "model.config.resid_pdrop=0.5", "data.seq_len=16",
                                    "training.micro_batch_size=2",  "training.precision=bf16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Evaluated evaluate(const std::vector<std::string>& given, int ranks, std::size_t tile_bytes = 0) {
    const Recipe recipe = load_recipe(std::nullopt, given);
    Evaluated result;
    comm::run_threads(ranks, [&](comm::World& world) {
      Job job = make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1), Purpose::evaluate);
      if (tile_bytes) {
        PlanRequest request{
            job.model.get(), {2, 16, recipe.training.precision, 1, false}, Mesh{ranks}, 1, placement_of(recipe.zero)};
        request.forward_only = true;
        request.tile_bytes = tile_bytes;
        job.plan = make_plan(request);
      }
      EXPECT_EQ(find_violation(job.plan, capacity_of(recipe.memory, 1).tier), std::nullopt);
      Evaluator evaluator(job, world, static_cast<int>(recipe.device.threads.value_or(1)),
                          *first_weights(job, world, 1, {}));
      std::uint64_t rounds = 0;
      const Evaluation e = *evaluator.run([&](std::uint64_t done, std::uint64_t all) {
        EXPECT_EQ(done, ++rounds);
        EXPECT_EQ(all, evaluator.rounds());
        return true;
      });
      if (world.rank() != 0) return;
      result = {hex(e.loss), e.loss, e.labels,
                memory_json(evaluator.executor().measured_memory(), nullptr) == memory_json(job.plan.memory, nullptr)};
    });
    return result;
  }

  tests::ScratchFolder folder_;
};

TEST_F(EvaluatorTest, SameBitsForAnyRanksStagesThreadsAndTiles) {
  const std::string data = "data.validation=" + tokens("v.bin", 0, 150);  // 10 sequences, the last shorter
  const Evaluated one = evaluate(sets({data}), 1);
  EXPECT_EQ(one.labels, 149u);
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 3})
      for (const std::size_t tile_bytes : {0, 100000}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, tiles above {}", ranks, stage, tile_bytes));
        const Evaluated e =
            evaluate(sets({data, fmt::format("zero.stage={}", stage), fmt::format("device.threads={}", ranks)}), ranks,
                     tile_bytes);
        EXPECT_EQ(e.loss_hex, one.loss_hex);
        EXPECT_TRUE(e.memory_as_planned);
      }
}

TEST_F(EvaluatorTest, EqualsTheLossOfATrainingStepOnTheSameSequences) {
  const std::string file = tokens("v.bin", 0, 12 * 16 + 1);
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const auto common = sets({fmt::format("training.precision={}", precision), "model.config.resid_pdrop=0",
                              "model.config.attn_pdrop=0", "model.config.embd_pdrop=0"});
    auto training = common, validation = common;
    training.insert(training.end(), {"data.train=" + file, "data.order=sequential", "training.max_steps=1",
                                     "training.gradient_accumulation_steps=6"});
    validation.push_back("data.validation=" + file);
    EXPECT_EQ(evaluate(validation, 2).loss_hex, train_in_threads(std::nullopt, training, 1).loss_hex[0]) << precision;
  }
}

TEST_F(EvaluatorTest, AShorterSequenceCountsItsOwnLabels) {
  const std::string whole = tokens("a.bin", 0, 33), rest = tokens("b.bin", 50, 56);
  const auto fp32 = [&](const std::string& files, const char* seq) {
    return sets({"data.validation=" + files, fmt::format("data.seq_len={}", seq), "training.precision=fp32"});
  };
  const Evaluated both = evaluate(fp32(fmt::format("[\"{}\", \"{}\"]", whole, rest), "16"), 2);
  const Evaluated first = evaluate(fp32(whole, "16"), 1), second = evaluate(fp32(rest, "5"), 1);
  EXPECT_EQ(both.labels, 37u);
  // Shapes determine the order of sums within a row, so results differ only by fp32 rounding.
  EXPECT_NEAR(both.loss * 37, first.loss * 32 + second.loss * 5, 1e-4);
}

TEST_F(EvaluatorTest, HoldsNoTrainingState) {
  const Recipe recipe = load_recipe(std::nullopt, sets({"data.validation=" + tokens("v.bin", 0, 40), "zero.stage=3"}));
  const Job evaluates = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1), Purpose::evaluate);
  for (const Kind kind : {Kind::gradients, Kind::optimizer})
    EXPECT_EQ(evaluates.plan.memory[0].by_kind[static_cast<std::size_t>(kind)], 0u);
  EXPECT_EQ(evaluates.plan.comm_bytes.all_to_all, 0u);
}

}  // namespace
}  // namespace strata::runtime
