#include <gtest/gtest.h>

#include "runtime/planner/fetches.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

class TransfersTest : public testing::Test {
 protected:
  int add(Tier tier) { return draft_.add_buffer("stored", Kind::optimizer, tier, 8192, true); }
  std::vector<TaskKind> kinds() const {
    std::vector<TaskKind> kinds;
    for (const Task& task : draft_.plan.tasks) kinds.push_back(task.kind);
    return kinds;
  }

  const PlanCase case_ = make_case(small(false), 2, 1, 3, device::DType::bf16, false, false, 1, {});
  Draft draft_{case_.request};
};

// State on NVMe passes through the host, together with state that is already there. State at the target stays.
TEST_F(TransfersTest, CopiesToTheDevicePassThroughTheHost) {
  const Slice of_drive = draft_.whole(add(Tier::nvme)), of_host = draft_.whole(add(Tier::host)),
              of_device = draft_.whole(add(Tier::device));
  const auto there = copy_to_tier(draft_, {of_drive, of_host, of_device}, Tier::device, 1, "state");
  EXPECT_EQ(kinds(), (std::vector{TaskKind::read, TaskKind::upload}));
  EXPECT_EQ(draft_.plan.tasks[1].uses.size(), 4u) << "both in one task";
  EXPECT_EQ(there[2].buffer, of_device.buffer);
  for (const Slice& slice : there) EXPECT_EQ(draft_.tier_of(slice.buffer), Tier::device);
}

TEST_F(TransfersTest, CopiesToTheDrivePassThroughTheHost) {
  const Slice stored = draft_.whole(add(Tier::nvme)), here = draft_.whole(add(Tier::device));
  copy_slices(draft_, {here, here}, {stored, here}, 1, "state");
  EXPECT_EQ(kinds(), (std::vector{TaskKind::download, TaskKind::write}));
  EXPECT_EQ(draft_.plan.tasks[1].uses[1].buffer, stored.buffer);
  EXPECT_EQ(draft_.plan.tasks[0].uses[1].buffer, draft_.plan.tasks[1].uses[0].buffer);
}

}  // namespace
}  // namespace strata::runtime
