#include "runtime/planner/visits.h"

#include <gtest/gtest.h>

#include "runtime/plan/proof/proof.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// A unit without input reads its parameters in backward, like an embedding with a norm after it: they are fetched.
TEST(Visits, BackwardFetchesParametersOnlyIfItReadsThem) {
  for (const bool reads : {false, true}) {
    FakeSizes sizes = small(false);
    sizes.first.parameters_in_backward = reads;
    const PlanCase c = make_case(sizes, 2, 2, 3, device::DType::bf16, false, false, 1, {});
    const StepPlan plan = make_plan(c.request);
    EXPECT_EQ(find_violation(plan, kUnlimited).value_or(""), "");
    for (const Task& task : plan.tasks)
      if (task.kind == TaskKind::backward && task.unit == 0) {
        EXPECT_EQ(task.buffer(Role::parameters) >= 0, reads);
        EXPECT_LT(task.buffer(Role::x), 0);
      }
  }
}

// Only the last part of this unit completes its output, although the unit has no input.
TEST(Visits, TheLastPartWritesTheOutputUnlessPartsDo) {
  for (const bool by_parts : {false, true}) {
    FakeSizes sizes = small(false);
    sizes.first.output_by_parts = by_parts;
    PlanCase c = make_case(sizes, 2, 1, 3, device::DType::bf16, false, false, 1, {});
    c.request.tile_bytes = 1;
    const StepPlan plan = make_plan(c.request);
    EXPECT_EQ(find_violation(plan, kUnlimited).value_or(""), "");
    for (const Task& task : plan.tasks)
      if (task.kind == TaskKind::forward && task.part == 0) {
        EXPECT_EQ(task.buffer(Role::y) >= 0, task.unit == 0 && by_parts) << task.unit;
      }
  }
}

}  // namespace
}  // namespace strata::runtime
