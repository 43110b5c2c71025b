#include "runtime/job/suggestion.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SuggestionTest, WhatIsNamedAsNearestFits) {
  const std::vector<std::string> sets = {"memory.device=12MB", "training.micro_batch_size=8",
                                         "training.precision=fp32"};
  const Job refused = tiny_job(sets, 4);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_FALSE(nearest.empty());
  for (const Suggestion& s : nearest) {
    std::vector<std::string> changed = sets;
    for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
    const Job fitting = tiny_job(changed, 4);
    EXPECT_TRUE(fits(fitting.plan, capacity)) << changed.back();
    EXPECT_EQ(fitting.plan.memory[0].peak, s.memory[0].peak);
    EXPECT_EQ(fitting.plan.accumulation * fitting.recipe.training.micro_batch_size, 8) << "another global batch";
  }
}

// What needs every change there is, is found too.
TEST(SuggestionTest, AllChangesAtOnceAreSuggested) {
  const std::vector<std::string> sets = {"training.micro_batch_size=8", "memory.nvme=/none", "memory.host=1GiB"};
  auto least = sets;
  for (const char* change : {"zero.stage=3", "training.recompute=block", "zero.parameters=nvme", "zero.gradients=nvme",
                             "zero.optimizer=nvme", "training.micro_batch_size=1",
                             "training.gradient_accumulation_steps=8", "memory.prefetch=0"})
    least.emplace_back(change);
  auto tight = sets;
  tight.push_back(fmt::format("memory.device={}", tiny_job(least, 2).plan.memory[0].peak));
  const Job refused = tiny_job(tight, 2);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  EXPECT_EQ(nearest[0].changes.size(), 8u);
  for (const auto& [key, value] : nearest[0].changes) tight.push_back(key + "=" + value);
  EXPECT_TRUE(fits(tiny_job(tight, 2).plan, capacity));
}

// State goes to host memory while there is some, to NVMe where there is not, and a drive that the recipe does not name
// is asked for; what is suggested fits every tier.
TEST(SuggestionTest, TiersAreSuggested) {
  const auto nearest = [](std::vector<std::string> sets, const char* device = "5MiB") {
    sets.insert(sets.end(), {fmt::format("memory.device={}", device), "training.recompute=block"});
    const Job refused = tiny_job(sets, 1);
    const Capacity capacity = capacity_of(refused.recipe.memory, 1);
    EXPECT_FALSE(fits(refused.plan, capacity));
    const auto found = nearest_that_fit(refused, capacity);
    std::string text = refusal(refused, capacity, found);
    for (const Suggestion& s : found) {
      auto changed = sets;
      for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
      EXPECT_TRUE(fits(tiny_job(changed, 1).plan, capacity)) << text;
    }
    return text;
  };
  EXPECT_THAT(nearest({"memory.host=1GiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("it fits with\n  --set zero.optimizer=host  (device "), HasSubstr(", host "),
                    testing::Not(HasSubstr("nvme"))));
  EXPECT_THAT(nearest({"memory.host=10MiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("--set zero.optimizer=nvme  (device "), HasSubstr(", nvme ")));
  EXPECT_THAT(nearest({"memory.host=10MiB"}),
              HasSubstr("--set memory.nvme=FOLDER --set zero.optimizer=nvme  (device "));
  EXPECT_THAT(nearest({"memory.host=1MiB", "memory.nvme=/none"}), HasSubstr("use more ranks or a smaller model"));
  // The host is what is too small.
  EXPECT_THAT(
      nearest({"memory.host=10MiB", "memory.nvme=/none", "zero.optimizer=host"}, "1GiB"),
      AllOf(HasSubstr("of host memory and memory.host is 10.0 MiB"), HasSubstr("--set zero.optimizer=nvme  (device "),
            HasSubstr("--set zero.optimizer=device  (device ")));
}

}  // namespace
}  // namespace strata::runtime
