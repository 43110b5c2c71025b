#include "runtime/job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device/error.h"
#include "runtime/simulator.h"
#include "tests/failure.h"

namespace strata::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Job job(std::vector<std::string> sets, int ranks) {
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16"});
  const Recipe recipe = load_recipe({}, sets);
  return make_job(recipe, ranks, capacity_of(recipe.memory, 1));
}

TEST(JobTest, StepsOfTooManyCallsAreRefusedBeforeTheyAreListed) {
  const auto refused = [](const std::vector<std::string>& sets, int ranks, const char* words) {
    EXPECT_FAILURE(job(sets, ranks), Exit::usage, HasSubstr(words));
  };
  refused({"training.gradient_accumulation_steps=16777216"}, 1 << 20, "16777216 micro-batches");
  refused({"training.global_batch_size=16777216"}, 1, "16777216 micro-batches");
  refused({"training.gradient_accumulation_steps=1366", "memory.order=vertical"}, 4, "memory.order=vertical");
  refused({"model.config.n_layer=4096"}, 1 << 20, "1048576 ranks");
  EXPECT_EQ(job({"training.gradient_accumulation_steps=10922"}, 2).plan.accumulation, 10922);
  EXPECT_FALSE(job({"training.gradient_accumulation_steps=10922", "zero.stage=3"}, 2).plan.vertical);
}

TEST(JobTest, TheStagingOfCheckpointsIsPlanned) {
  const auto host = [](const std::vector<std::string>& sets) {
    return job(sets, 2).plan.memory[static_cast<std::size_t>(Tier::host)].peak;
  };
  EXPECT_EQ(host({}), 0u);
  EXPECT_EQ(host({"checkpoint.dir=/tmp/none"}), std::size_t{4} << 20);
}

// It is what memory allows: a limit just below takes it away, and the step still fits.
TEST(JobTest, StateIsReadAheadWhereItFits) {
  const auto host = [](const char* more) {
    return job({"zero.optimizer=nvme", "memory.nvme=/tmp", "training.precision=bf16", more}, 1)
        .plan.memory[static_cast<std::size_t>(Tier::host)]
        .peak;
  };
  const std::size_t ahead = host("memory.prefetch=1"), without = host("memory.prefetch=0");
  EXPECT_GT(ahead, without);
  EXPECT_EQ(host(fmt::format("memory.host={}", ahead).c_str()), ahead);
  EXPECT_EQ(host(fmt::format("memory.host={}", ahead - 1).c_str()), without);
}

TEST(JobTest, OrderIsTheOneThatIsFasterOrMovesLess) {
  const auto chosen = [](std::vector<std::string> sets, int ranks) {
    sets.insert(sets.end(), {"training.gradient_accumulation_steps=4", "model.config.n_embd=256"});
    const auto ordered = [&](const std::string& order) {
      auto all = sets;
      all.push_back("memory.order=" + order);
      return job(all, ranks).plan;
    };
    const StepPlan horizontal = ordered("horizontal"), vertical = ordered("vertical"), taken = ordered("auto");
    const auto seconds = [](const StepPlan& plan) { return makespan_s(simulate(plan, nominal_profile(plan))); };
    EXPECT_LE(seconds(taken), 1.01 * std::min(seconds(horizontal), seconds(vertical))) << sets[0];
    return taken.vertical;
  };
  EXPECT_TRUE(chosen({"zero.stage=3"}, 2)) << "gathered once a step";
  EXPECT_TRUE(chosen({"zero.parameters=host"}, 1)) << "uploaded once a step";
  EXPECT_FALSE(chosen({"zero.stage=1"}, 2)) << "nothing moves more often in either";
  EXPECT_FALSE(
      chosen({"zero.optimizer=host", "training.recompute=block", "zero.activations=nvme", "memory.nvme=[\"/tmp\"]",
              "data.seq_len=128", "training.micro_batch_size=4", "training.precision=fp32"},
             1))
      << "what crosses between units would go to the drive for every micro-batch";
}

TEST(JobTest, WhatIsNamedAsNearestFits) {
  const std::vector<std::string> sets = {"memory.device=12MB", "training.micro_batch_size=8",
                                         "training.precision=fp32"};
  const Job refused = job(sets, 4);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused.recipe, 4, capacity);
  ASSERT_FALSE(nearest.empty());
  for (const Suggestion& s : nearest) {
    std::vector<std::string> changed = sets;
    for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
    const Job fitting = job(changed, 4);
    EXPECT_TRUE(fits(fitting.plan, capacity)) << changed.back();
    EXPECT_EQ(fitting.plan.memory[0].peak, s.memory[0].peak);
    EXPECT_EQ(fitting.plan.accumulation * fitting.recipe.training.micro_batch_size, 8) << "another global batch";
  }
}

// State goes to host memory while there is some, to NVMe where there is not, and a drive that the recipe does not name
// is asked for; what is suggested fits every tier.
TEST(JobTest, TiersAreSuggested) {
  const auto nearest = [](std::vector<std::string> sets, const char* device = "5MiB") {
    sets.insert(sets.end(), {fmt::format("memory.device={}", device), "training.recompute=block"});
    const Job refused = job(sets, 1);
    const Capacity capacity = capacity_of(refused.recipe.memory, 1);
    EXPECT_FALSE(fits(refused.plan, capacity));
    const auto found = nearest_that_fit(refused.recipe, 1, capacity);
    std::string text = refusal(refused, capacity, found);
    for (const Suggestion& s : found) {
      auto changed = sets;
      for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
      EXPECT_TRUE(fits(job(changed, 1).plan, capacity)) << text;
    }
    return text;
  };
  EXPECT_THAT(nearest({"memory.host=1GiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("it fits with zero.optimizer=\"host\" (device "), HasSubstr(", host "),
                    testing::Not(HasSubstr("nvme"))));
  EXPECT_THAT(nearest({"memory.host=10MiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("it fits with zero.optimizer=\"nvme\" (device "), HasSubstr(", nvme ")));
  EXPECT_THAT(nearest({"memory.host=10MiB"}),
              HasSubstr("it fits with memory.nvme=\"FOLDER\" zero.optimizer=\"nvme\" (device "));
  EXPECT_THAT(nearest({"memory.host=1MiB", "memory.nvme=/none"}), HasSubstr("use more ranks or a smaller model"));
  // The host is what is too small.
  EXPECT_THAT(nearest({"memory.host=10MiB", "memory.nvme=/none", "zero.optimizer=host"}, "1GiB"),
              AllOf(HasSubstr("of host memory and memory.host is 10.0 MiB"),
                    HasSubstr("it fits with zero.optimizer=\"nvme\" (device "),
                    HasSubstr("or with zero.optimizer=\"device\" (device ")));
}

}  // namespace
}  // namespace strata::runtime
