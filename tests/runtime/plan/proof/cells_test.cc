#include "runtime/plan/proof/cells.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

// Two tiers; a use in the middle of the first buffer cuts it in three.
TEST(Cells, AreCutWhereUsesBeginAndEnd) {
  StepPlan plan{};
  plan.buffers = {{"a", Kind::workspace, Tier::device, 16384, false, false, 0},
                  {"b", Kind::workspace, Tier::host, 8192, false, false, 4096}};
  Task task{TaskKind::forward, LaneId::compute};
  task.uses = {{0, Role::x, Access::read, 4096, 8192}, {1, Role::y, Access::write}};
  plan.tasks = {task};
  const Cells cells(plan);

  const auto whole = cells.of(Tier::device, {0, 16384}), used = cells.of(Tier::device, {4096, 12288});
  EXPECT_EQ(whole.last - whole.first, 3);
  EXPECT_EQ(used.last - used.first, 1);
  EXPECT_EQ(cells.begin_of(Tier::device, used.first), 4096u);
  EXPECT_EQ(cells.bytes_of(Tier::device, used.first), 8192u);
  // For bytes that are not the boundary of a use, the result is every cell that they touch.
  const auto touched = cells.touching(Tier::device, {5000, 13000});
  EXPECT_EQ(touched.first, used.first);
  EXPECT_EQ(touched.last, whole.last);
  const auto host = cells.of(Tier::host, {4096, 12288});
  EXPECT_EQ(host.last - host.first, 1);
  EXPECT_GE(host.first, whole.last);
  EXPECT_LE(host.last, cells.size());
}

}  // namespace
}  // namespace strata::runtime
