#include "runtime/job/state_bytes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// Whatever it refuses does not fit: with just the memory that a plan needs it refuses none, and it does refuse some.
TEST(StateBytes, RefuseNoPlanThatFits) {
  std::mt19937 random(7);
  const auto pick = [&](const std::vector<const char*>& values) { return values[random() % values.size()]; };
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> sets = {"memory.nvme=/none"};
    const auto set = [&](const char* key, const auto& value) { sets.push_back(fmt::format("{}={}", key, value)); };
    for (const char* key : {"zero.parameters", "zero.gradients", "zero.optimizer"})
      set(key, pick({"device", "host", "nvme"}));
    set("zero.stage", random() % 4);
    set("training.precision", pick({"fp32", "bf16"}));
    set("training.gradient_accumulation_steps", 1 + random() % 2);
    set("optimizer.name", pick({"adamw", "adamw8bit", "lion", "sgd"}));
    const int ranks = 1 << random() % 3;
    const Job job = tiny_job(sets, ranks);
    Capacity capacity{{}, kUnlimited, {}};
    for (std::size_t tier = 0; tier < kTiers; ++tier) capacity.tier[tier] = job.plan.memory[tier].peak;
    EXPECT_TRUE(state_may_fit(job.recipe, job.plan.layout, capacity)) << fmt::format("{}", i);
    capacity.together = capacity.tier[0] + capacity.tier[1];
    EXPECT_TRUE(state_may_fit(job.recipe, job.plan.layout, capacity)) << fmt::format("{}", i);
    for (std::size_t& bytes : capacity.tier) bytes /= 4;
    refused += state_may_fit(job.recipe, job.plan.layout, capacity) ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace strata::runtime
