#include "runtime/memory/storage.h"

#include <gtest/gtest.h>

#include "tests/comm/run_threads.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

// Another plan in the same memory must not need more bytes of any tier than exist.
TEST(StorageDeathTest, AnotherPlanMustFitIntoEachTier) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Job job = tiny_job({"zero.optimizer=host"}, 1);
  comm::run_threads(1, [&](comm::World& world) {
    const Storage storage(job.plan, world, {});
    StepPlan other = job.plan;
    const Storage fits(other, storage);
    EXPECT_EQ(fits.swap(), nullptr);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      other.memory = job.plan.memory;
      ++other.memory[tier].peak;
      EXPECT_DEATH(Storage(other, storage), "peak") << tier;
    }
  });
}

}  // namespace
}  // namespace strata::runtime
