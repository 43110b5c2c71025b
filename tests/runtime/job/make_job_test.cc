#include "runtime/job/make_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/forecast/simulator.h"
#include "runtime/planner/planner.h"
#include "tests/failure.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Other work of a run is planned together with its steps, and in their memory.
TEST(JobTest, EvaluationsAndAnswersHaveAPlanBetweenTheSteps) {
  const std::vector<std::string> asked = {"evaluation.every=1", "data.validation=none.bin"};
  const Job without = tiny_job({}, 1), evaluated = tiny_job(asked, 1);
  EXPECT_FALSE(without.evaluation || without.generation);
  ASSERT_TRUE(evaluated.evaluation);
  EXPECT_FALSE(evaluated.generation);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    EXPECT_LE(evaluated.evaluation->plan.memory[tier].peak, evaluated.plan.memory[tier].peak);
  const Job answered = tiny_job({asked[0], asked[1], "evaluation.prompts=none.txt"}, 1);
  EXPECT_TRUE(answered.evaluation && answered.generation);
}

// State is divided within a stage, so its groups are those of a stage's ranks.
TEST(JobTest, GroupsDivideTheRanksOfAStage) {
  const std::vector<std::string> sets = {"parallel.stages=2", "zero.stage=2"};
  const auto with_group = [&](const char* group) { return tiny_job({sets[0], sets[1], group}, 4); };
  EXPECT_FAILURE(with_group("zero.optimizer_group=4"), Exit::usage,
                 AllOf(HasSubstr("zero.optimizer_group = 4"), HasSubstr("2 data ranks")));
  EXPECT_EQ(with_group("zero.optimizer_group=2").plan.mesh().data(), 2);
}

// There are no answers after the step whose evaluation would have produced them.
TEST(JobTest, PromptsNeedAModelThatGenerates) {
  for (const char* objective : {"sequence_classification", "token_classification"})
    for (const char* preset : {"tiny-llama", "tiny-gpt2"})
      EXPECT_FAILURE(tiny_job({fmt::format("model.preset={}", preset), fmt::format("training.objective={}", objective),
                               "evaluation.every=1", "data.validation=none.bin", "evaluation.prompts=none.txt"},
                              1),
                     Exit::usage, AllOf(HasSubstr("evaluation.prompts = "), HasSubstr(objective), HasSubstr("leave")));
}

// A model that ends in classes has no logits for a next token, whether it is a decoder or an encoder.
TEST(JobTest, AClassifierDoesNotGenerate) {
  for (const char* preset : {"tiny-llama", "tiny-gpt2", "bert-base"})
    for (const char* objective : {"sequence_classification", "token_classification"}) {
      const std::vector<std::string> sets = {fmt::format("model.preset={}", preset), "data.seq_len=16",
                                             fmt::format("training.objective={}", objective)};
      const Recipe recipe = load_recipe({}, sets);
      EXPECT_FAILURE(make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1), Purpose::generate), Exit::usage,
                     HasSubstr("does not generate"));
    }
}

// No step up to ten is a multiple of eleven. The plan contains only what the run does.
TEST(JobTest, AnEvaluationThatNoStepReachesIsNotPlanned) {
  const std::string steps = "training.max_steps=10", data = "data.validation=none.bin";
  EXPECT_FALSE(tiny_job({steps, data, "evaluation.every=11"}, 1).evaluation);
  EXPECT_TRUE(tiny_job({steps, data, "evaluation.every=10"}, 1).evaluation);
  EXPECT_TRUE(tiny_job({steps, data, "evaluation.every=11", "evaluation.at_start=true"}, 1).evaluation);
}

TEST(JobTest, AnEvaluationBeforeTheBeginningIsNotPlanned) {
  const Recipe recipe = load_recipe(
      {}, std::vector<std::string>{"model.preset=tiny-gpt2", "data.seq_len=16", "training.max_steps=10",
                                   "data.validation=none.bin", "evaluation.every=4", "evaluation.at_start=true"});
  const auto evaluates = [&](const StartPoint& from) {
    const bool comes = will_evaluate(recipe, from);
    const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1), Purpose::train, from);
    EXPECT_EQ(job.evaluation != nullptr, comes);
    return comes;
  };
  EXPECT_TRUE(evaluates({0, false}));
  EXPECT_TRUE(evaluates({0, true}));
  EXPECT_TRUE(evaluates({7, false}));
  EXPECT_TRUE(evaluates({8, false})) << "the eighth step's evaluation is still to come";
  EXPECT_FALSE(evaluates({8, true}));
  EXPECT_FALSE(evaluates({9, false}));
}

TEST(JobTest, StepsOfTooManyCallsAreRefusedBeforeTheyAreListed) {
  const auto refused = [](const std::vector<std::string>& sets, int ranks, const char* words) {
    EXPECT_FAILURE(tiny_job(sets, ranks), Exit::usage, HasSubstr(words));
  };
  refused({"training.gradient_accumulation_steps=16777216"}, 1 << 20, "16777216 micro-batches");
  refused({"training.global_batch_size=16777216"}, 1, "16777216 micro-batches");
  refused({"training.gradient_accumulation_steps=1366", "memory.order=vertical"}, 4, "memory.order=vertical");
  refused({"model.config.n_layer=4096"}, 1 << 20, "1048576 ranks");
  EXPECT_EQ(tiny_job({"training.gradient_accumulation_steps=10922"}, 2).plan.accumulation, 10922);
  EXPECT_FALSE(tiny_job({"training.gradient_accumulation_steps=10922", "zero.stage=3"}, 2).plan.vertical);
}

TEST(JobTest, TheStagingOfCheckpointsIsPlanned) {
  const auto host = [](const std::vector<std::string>& sets) {
    return tiny_job(sets, 2).plan.memory[static_cast<std::size_t>(Tier::host)].peak;
  };
  EXPECT_EQ(host({}), 0u);
  EXPECT_EQ(host({"checkpoint.dir=/tmp/none"}), std::size_t{4} << 20);
}

// Reading ahead depends on memory. If the limit is slightly too low for it, it is omitted, and the step still fits.
TEST(JobTest, ReadsStateAheadIfItFits) {
  const auto host = [](const char* more) {
    return tiny_job({"zero.optimizer=nvme", "memory.nvme=/tmp", "training.precision=bf16", more}, 1)
        .plan.memory[static_cast<std::size_t>(Tier::host)]
        .peak;
  };
  const std::size_t ahead = host("memory.prefetch=1"), without = host("memory.prefetch=0");
  EXPECT_GT(ahead, without);
  EXPECT_EQ(host(fmt::format("memory.host={}", ahead).c_str()), ahead);
  EXPECT_EQ(host(fmt::format("memory.host={}", ahead - 1).c_str()), without);
}

// A step fits into exactly the bytes that it needs: in each tier, and in device and host memory together.
TEST(JobTest, FitsIntoExactlyWhatItNeeds) {
  const StepPlan plan =
      tiny_job({"zero.optimizer=host", "zero.activations=nvme", "training.recompute=block", "memory.nvme=/tmp"}, 1)
          .plan;
  const std::array<std::size_t, kTiers> peak = {plan.memory[0].peak, plan.memory[1].peak, plan.memory[2].peak};
  for (const std::size_t bytes : peak) ASSERT_GT(bytes, 0u);
  const Capacity exactly{peak, peak[0] + peak[1]};
  EXPECT_TRUE(fits(plan, exactly));
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    Capacity less = exactly;
    --less.tier[tier];
    EXPECT_FALSE(fits(plan, less)) << kTierNames[tier];
  }
  EXPECT_FALSE(fits(plan, {peak, peak[0] + peak[1] - 1}));
}

TEST(JobTest, ChoosesTheFasterOfTwoOrdersWithEqualMemory) {
  const auto chosen = [](std::vector<std::string> sets, int ranks) {
    sets.insert(sets.end(), {"training.gradient_accumulation_steps=4", "model.config.n_embd=256"});
    const auto ordered = [&](const std::string& order) {
      auto all = sets;
      all.push_back("memory.order=" + order);
      return tiny_job(all, ranks).plan;
    };
    const StepPlan horizontal = ordered("horizontal"), vertical = ordered("vertical"), taken = ordered("auto");
    const auto seconds = [](const StepPlan& plan) { return makespan_s(plan, simulate(plan, nominal_profile(plan))); };
    EXPECT_LE(seconds(taken), 1.01 * std::min(seconds(horizontal), seconds(vertical))) << sets[0];
    return taken.vertical;
  };
  EXPECT_TRUE(chosen({"zero.stage=3"}, 2)) << "gathered once per step";
  EXPECT_TRUE(chosen({"zero.parameters=host"}, 1)) << "uploaded once per step";
  EXPECT_FALSE(chosen({"zero.stage=1"}, 2)) << "nothing moves more often in either order";
  EXPECT_FALSE(
      chosen({"zero.optimizer=host", "training.recompute=block", "zero.activations=nvme", "memory.nvme=[\"/tmp\"]",
              "data.seq_len=128", "training.micro_batch_size=4", "training.precision=fp32"},
             1))
      << "the tensors between units would go to the drive for every micro-batch";
}

}  // namespace
}  // namespace strata::runtime
