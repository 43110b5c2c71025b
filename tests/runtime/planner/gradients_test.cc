#include "runtime/planner/gradients.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "runtime/plan/validator.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// Two units that share a tensor of a third, neither of them at an end of the model: each has a gradient of it, summed
// apart, and both are added to the holder's once per step, whatever the layout.
TEST(Gradients, TwoUnitsShareATensorOfAThird) {
  FakeSizes sizes = small(false);
  sizes.shares = {{2, 1, 0}, {4, 1, 0}};  // a block and the loss, of the first block
  for (const int ranks : {1, 2, 3})
    for (const int accumulation : {1, 3})
      for (int zero_stage = 0; zero_stage <= 3; ++zero_stage)
        for (const Tier gradients : {Tier::device, Tier::host})
          for (const bool vertical : {false, true}) {
            SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, stage {}", ranks, accumulation, zero_stage));
            PlanCase c = make_case(sizes, ranks, accumulation, zero_stage, device::DType::bf16, false, vertical, 1, {});
            c.request.placement.gradients.tier = gradients;
            c.request.tile_bytes = 1;
            const StepPlan plan = make_plan(c.request);
            EXPECT_EQ(find_violation(plan, kUnlimited).value_or(""), "");
            EXPECT_TRUE(plan.has_sums());
            std::map<std::pair<int, TaskKind>, int> of_shared, count;
            for (const Task& task : plan.tasks) {
              ++count[{task.unit, task.kind}];
              if (task.shared) ++of_shared[{task.unit, task.kind}];
              // Whole, as none of the two can do with a part.
              const bool uses = task.buffer(Role::shared_parameters) >= 0;
              EXPECT_EQ(uses, (task.unit == 2 || task.unit == 4) && task.lane == LaneId::compute &&
                                  task.kind != TaskKind::update);
              if (task.kind == TaskKind::gather && task.unit == 1) {
                EXPECT_EQ(task.part, -1);
              }
              if (task.kind == TaskKind::combine) {
                EXPECT_EQ(task.unit, 1);
                EXPECT_EQ(task.end, 8192u);  // 5,000 elements, in whole blocks
              }
            }
            EXPECT_EQ((count[{1, TaskKind::combine}]), 2);
            for (const int sharer : {2, 4}) EXPECT_EQ((of_shared[{sharer, TaskKind::reduce}]), accumulation);
            EXPECT_EQ(of_shared.size(), 2u);
          }
}

}  // namespace
}  // namespace strata::runtime
