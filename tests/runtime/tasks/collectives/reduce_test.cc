#include "runtime/tasks/collectives/reduce.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

struct Reduced {
  StepPlan plan;
  Task task;
  std::size_t staging = 0;  // bytes; 0: none
};
Reduced reduce(int ranks, int part) {
  const PlanCase c = make_case(small(false), ranks, 2, 3, device::DType::bf16, false, false, 1, {});
  Draft draft(c.request);
  const UnitPart which{1, part};
  const ElementRange range = draft.range_of(which);
  const int gradients = draft.add_buffer("gradients", Kind::gradients, Tier::device, range.size() * 2, false);
  const int sum = draft.add_buffer("sum", Kind::gradients, Tier::device, draft.layout(1).shard() * 4, false);
  ReduceGradient{
      .gradient = {which, 1, range, false, gradients}, .sum = {.buffer = sum, .starts = false}, .first = false}
      .add(draft);
  Reduced out{draft.plan, draft.plan.tasks[0]};
  if (const int staging = out.task.buffer(Role::staging); staging >= 0)
    out.staging = draft.plan.buffers[static_cast<std::size_t>(staging)].bytes;
  EXPECT_EQ(out.task.buffer(Role::gradients), gradients);
  EXPECT_EQ(out.task.buffer(Role::sum), sum);
  EXPECT_EQ(out.task.end - out.task.begin, range.size());
  for (const Use& use : out.task.uses) {
    if (use.role == Role::gradients) {
      EXPECT_EQ(use.access, Access::read);
    }
    if (use.role == Role::sum) {
      EXPECT_EQ(use.access, Access::update) << "continues with the sum";
    }
  }
  return out;
}

// The pieces of this rank's shard from all ranks arrive at once, in separate memory.
TEST(Reduce, SendsAUnitAtOnce) {
  const Reduced r = reduce(2, -1);
  EXPECT_EQ(r.task.at_once, r.task.end - r.task.begin);
  EXPECT_EQ(r.staging, aligned(2 * r.plan.layout.units[1].shard() * 2));
  EXPECT_EQ(r.plan.comm_bytes.all_to_all, r.plan.layout.units[1].shard() * 2) << "to the other rank";
  EXPECT_EQ(r.task.cost.sent_bytes, static_cast<double>(r.plan.layout.units[1].shard() * 2));
}

// For a part, at most the part's bytes arrive at once, although all of it may belong to one rank.
TEST(Reduce, SendsAPartInPieces) {
  const Reduced r = reduce(2, 2);
  EXPECT_LT(r.task.at_once, r.task.end - r.task.begin);
  EXPECT_EQ(r.task.at_once % kShardAlignment, 0u);
  EXPECT_EQ(r.staging, aligned(2 * std::min(r.plan.layout.units[1].shard(), r.task.at_once) * 2));
}

TEST(Reduce, SendsNothingOnOneRank) {
  const Reduced r = reduce(1, -1);
  EXPECT_EQ(r.staging, 0u);
  EXPECT_EQ(r.plan.comm_bytes.total(), 0u);
  EXPECT_EQ(r.task.cost.sent_bytes, 0);
}

}  // namespace
}  // namespace strata::runtime
