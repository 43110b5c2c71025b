#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

// A single rank holds everything, whatever the stage is called.
TEST(StepPlanTest, IsShardedBetweenRanksAlone) {
  StepPlan plan;
  plan.placement.parameters.sharded = plan.placement.optimizer.sharded = true;
  UnitLayout unit{};
  unit.padded = 16;
  unit.shard = 8;
  plan.layout.units = {unit};
  plan.ranks = 1;
  EXPECT_FALSE(plan.sharded_parameters());
  EXPECT_FALSE(plan.sharded_optimizer());
  EXPECT_EQ(plan.part_size(0), 16u);
  EXPECT_EQ(plan.part_begin(0, 0), 0u);
  plan.ranks = 2;
  EXPECT_TRUE(plan.sharded_parameters());
  EXPECT_TRUE(plan.sharded_optimizer());
  EXPECT_EQ(plan.part_size(0), 8u);
  EXPECT_EQ(plan.part_begin(0, 1), 8u);
  plan.placement.optimizer.sharded = false;
  EXPECT_EQ(plan.part_size(0), 16u);
  EXPECT_EQ(plan.part_begin(0, 1), 0u);
}

}  // namespace
}  // namespace strata::runtime
