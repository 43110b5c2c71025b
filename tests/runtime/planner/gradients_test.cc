#include "runtime/planner/gradients.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "runtime/plan/proof/proof.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// Two units share a tensor of a third, and neither is at an end of the model. Each has a gradient of it, which is
// summed separately, and both are added to the holder's once per step, in any layout.
TEST(Gradients, TwoUnitsMayShareATensorOfAThird) {
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
              // The sum is complete, because neither of the two can use a part.
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

// The fp32 sum of a tiled unit is larger than its parameters, and never complete on the device of a single rank.
TEST(Gradients, TheDeviceHoldsOneTileOfATiledSum) {
  FakeSizes sizes = small(false);
  for (const bool tied : {false, true})
    for (const int accumulation : {1, 3})
      for (const Tier optimizer : {Tier::device, Tier::host})
        for (const Tier gradients : {Tier::device, Tier::host, Tier::nvme})
          for (const bool vertical : {false, true}) {
            SCOPED_TRACE(fmt::format("tied {}, {} micro-batches, gradients in {}", tied, accumulation,
                                     kTierNames[static_cast<std::size_t>(gradients)]));
            sizes.tied = tied;
            if (tied) sizes.parameters[0] = {32 * 32, 16 * 32, 16 * 32, 20000};
            PlanCase c = make_case(sizes, 1, accumulation, 0, device::DType::bf16, false, vertical, 1, {});
            c.request.placement.parameters.tier = Tier::host;
            c.request.placement.gradients.tier = gradients;
            c.request.placement.optimizer.tier = optimizer;
            c.request.update_chunk = kShardAlignment;
            c.request.tile_bytes = 1;
            const StepPlan plan = make_plan(c.request);
            EXPECT_EQ(find_violation(plan, kUnlimited).value_or(""), "");
            const auto parts_of = [&](int unit) { return c.model->units[static_cast<std::size_t>(unit)]->parts(); };
            // The piece that the norm processes at once, or a part; the last part includes the padding.
            std::size_t most = kShardAlignment;
            for (int unit = 0; unit < static_cast<int>(plan.layout.units.size()); ++unit) {
              if (parts_of(unit).size() < 2) continue;
              for (const models::Part& part : parts_of(unit)) most = std::max(most, part.size());
              most = std::max(most,
                              plan.layout.units[static_cast<std::size_t>(unit)].padded() - parts_of(unit).back().begin);
            }
            std::vector<std::size_t> normed(plan.layout.units.size());
            bool whole = false;
            for (const Task& task : plan.tasks) {
              if (task.kind != TaskKind::reduce && task.kind != TaskKind::norm && task.kind != TaskKind::combine)
                continue;
              const auto& unit = plan.layout.units[static_cast<std::size_t>(task.unit)];
              if (task.kind == TaskKind::norm)
                normed[static_cast<std::size_t>(task.unit)] += task.part >= 0 ? task.end - task.begin : unit.padded();
              for (const Use& use : task.uses)
                if ((use.role == Role::sum && parts_of(task.unit).size() > 1) || use.role == Role::shared_sum)
                  whole =
                      whole || plan.buffers[static_cast<std::size_t>(use.buffer)].bytes > aligned(most * sizeof(float));
            }
            EXPECT_EQ(whole, gradients != Tier::host);
            for (std::size_t unit = 0; unit < normed.size(); ++unit)
              EXPECT_EQ(normed[unit], plan.layout.units[unit].padded()) << unit;
          }
}

}  // namespace
}  // namespace strata::runtime
