#include "runtime/planner/updates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/proof/proof.h"
#include "runtime/planner/planner.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// The bytes read for the first unit's update: during the pending update of the previous step, or always.
double first_state_read(const StepPlan& plan, When when) {
  double bytes = 0;
  for (const Task& task : plan.tasks)
    if (task.kind == TaskKind::read && task.unit == 0 && task.when == when) bytes += task.cost.read_bytes;
  return bytes;
}

// The first update's state is read while the previous step still computes, and is written when nothing else waits for
// the drive. The bytes moved stay the same. Memory grows by that state and three chunks on their way.
TEST(Updates, TheFirstUnitsStateIsReadAhead) {
  for (const auto dtype : {device::DType::fp32, device::DType::bf16}) {
    PlanCase c = make_case(large_first(), 2, 3, 2, dtype, false, true, 2, {});
    c.request.placement.optimizer.tier = Tier::nvme;
    c.request.update_chunk = kShardAlignment;
    const StepPlan without = make_plan(c.request);
    c.request.read_ahead = true;
    const StepPlan with = make_plan(c.request);
    EXPECT_EQ(find_violation(with, kUnlimited).value_or(""), "");
    EXPECT_EQ(with.io_bytes.read, without.io_bytes.read);
    EXPECT_EQ(with.io_bytes.written, without.io_bytes.written);
    const double bytes = first_state_read(without, When::pending);
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(first_state_read(without, When::always), 0);
    EXPECT_EQ(first_state_read(with, When::pending), 0);
    EXPECT_EQ(first_state_read(with, When::always), bytes);
    // Three chunks of later units are on their way, with their gradients, while the first units are updated.
    const auto chunk = static_cast<double>(c.request.update_chunk * (3 * sizeof(float) + 2 * sizeof(float)));
    EXPECT_LE(static_cast<double>(with.memory[1].peak),
              static_cast<double>(without.memory[1].peak) + bytes + 3 * chunk);
    std::size_t last_read = 0, first_write = with.tasks.size();
    for (std::size_t t = with.tasks.size(); t-- > 0;) {
      if (with.tasks[t].kind == TaskKind::read && with.tasks[t].when == When::pending)
        last_read = std::max(last_read, t);
      if (with.tasks[t].kind == TaskKind::write && with.tasks[t].unit == 0) first_write = t;
    }
    EXPECT_GT(first_write, last_read);
  }
}

}  // namespace
}  // namespace strata::runtime
