#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

// A single rank holds everything, whatever the stage is called.
TEST(StepPlanTest, IsShardedOnlyOverSeveralRanks) {
  StepPlan plan;
  plan.placement.parameters.over = plan.placement.optimizer.over = Axis::data;
  UnitLayout unit{};
  unit.shards = {1, 1, 16};
  plan.layout = {{1}, {unit}};
  EXPECT_FALSE(plan.sharded_parameters());
  EXPECT_FALSE(plan.sharded_optimizer());
  EXPECT_EQ(plan.parts_of(0).size(), 16u);
  EXPECT_EQ(plan.parts_of(0).piece(plan.mesh().at(0)).begin, 0u);
  unit.shards = {2, 1, 16};
  plan.layout = {{2}, {unit}};
  EXPECT_TRUE(plan.sharded_parameters());
  EXPECT_TRUE(plan.sharded_optimizer());
  EXPECT_EQ(plan.parts_of(0).size(), 8u);
  EXPECT_EQ(plan.parts_of(0).piece(plan.mesh().at(1)).begin, 8u);
  plan.placement.optimizer.over = Axis::none;
  EXPECT_EQ(plan.parts_of(0).size(), 16u);
  EXPECT_EQ(plan.parts_of(0).piece(plan.mesh().at(1)).begin, 0u);
  EXPECT_EQ(plan.parameters_of(0).size(), 8u);
}

}  // namespace
}  // namespace strata::runtime
