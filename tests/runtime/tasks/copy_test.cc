#include "runtime/tasks/copy.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

struct Direction {
  Tier from, to;
  TaskKind kind;
  LaneId lane;
};

// The tiers determine the direction, and each target names the use of which it is a copy.
TEST(Copy, FollowsItsTiers) {
  const PlanCase c = make_case(small(false), 2, 1, 3, device::DType::bf16, false, false, 1, {});
  for (const Direction& d : {Direction{Tier::host, Tier::device, TaskKind::upload, LaneId::upload},
                             Direction{Tier::device, Tier::host, TaskKind::download, LaneId::download},
                             Direction{Tier::nvme, Tier::host, TaskKind::read, LaneId::disk_read},
                             Direction{Tier::host, Tier::nvme, TaskKind::write, LaneId::disk_write}}) {
    SCOPED_TRACE(traits_of(d.kind).name);
    Draft draft(c.request);
    const int from = draft.add_buffer("from", Kind::staging, d.from, 16384, false);
    const int to = draft.add_buffer("to", Kind::staging, d.to, 16384, false);
    Copy{1, {{{from, 0, 4096}, {to, 8192, 4096}}, {{from, 4096, 8192}, {to, 0, 8192}}}}.add(draft);
    ASSERT_EQ(draft.plan.tasks.size(), 1u);
    const Task& task = draft.plan.tasks[0];
    EXPECT_EQ(task.kind, d.kind);
    EXPECT_EQ(task.lane, d.lane);
    EXPECT_EQ(task.unit, 1);
    ASSERT_EQ(task.uses.size(), 4u);
    int copies = 0;
    for (const Use& target : task.uses) {
      EXPECT_EQ(target.copies >= 0, target.access == Access::write);
      if (target.copies < 0) continue;
      const Use& source = task.uses[static_cast<std::size_t>(target.copies)];
      EXPECT_EQ(source.access, Access::read);
      EXPECT_EQ(source.buffer, from);
      EXPECT_EQ(target.buffer, to);
      EXPECT_EQ(source.bytes, target.bytes);
      EXPECT_EQ(source.offset == 0, target.offset == 8192);
      ++copies;
    }
    EXPECT_EQ(copies, 2);
    EXPECT_EQ(draft.plan.io_bytes.total(), 12288u);
    EXPECT_EQ(task.cost.host_bytes + task.cost.read_bytes + task.cost.written_bytes, 12288);
    EXPECT_EQ(task.cost.host_bytes > 0, d.from != Tier::nvme && d.to != Tier::nvme);
  }
}

// Copies at the step boundary, for example, are not part of the step's traffic.
TEST(Copy, CompleteBuffersAreNotCounted) {
  const PlanCase c = make_case(small(false), 2, 1, 3, device::DType::bf16, false, false, 1, {});
  Draft draft(c.request);
  const int from = draft.add_buffer("from", Kind::staging, Tier::device, 4096, true);
  const int to = draft.add_buffer("to", Kind::staging, Tier::host, 4096, true);
  Copy{-1, {{{from}, {to}}}}.add(draft);
  EXPECT_EQ(draft.plan.io_bytes.total(), 0u);
  EXPECT_EQ(draft.plan.tasks[0].cost.host_bytes, 0);
  EXPECT_EQ(touched_by(draft.plan.tasks[0].uses[1], draft.plan.buffers[static_cast<std::size_t>(to)]).end, 4096u);
}

}  // namespace
}  // namespace strata::runtime
