#include "runtime/tasks/gather.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// From a shard of its own into other memory, or among the others' in its place, where all but its own is written.
TEST(Gather, ReadsTheShardWhereItLies) {
  const PlanCase c = make_case(small(false), 4, 1, 3, device::DType::bf16, false, false, 1, {});
  for (const bool in_place : {false, true}) {
    Draft draft(c.request);
    const std::size_t shard_bytes = draft.layout(1).shard() * 2;
    const int shard = draft.add_buffer("shard", Kind::parameters, Tier::device, shard_bytes, true);
    const int whole = draft.add_buffer("whole", Kind::parameters, Tier::device, 4 * shard_bytes, false);
    Gather{.which = {1}, .shard = in_place ? Slice{} : draft.whole(shard), .parameters = whole}.add(draft);
    const Task& task = draft.plan.tasks[0];
    EXPECT_EQ(task.buffer(Role::shard), in_place ? -1 : shard);
    EXPECT_EQ(task.uses.back().buffer, whole);
    EXPECT_EQ(task.uses.back().access, in_place ? Access::update : Access::write);
    EXPECT_EQ(task.end, draft.layout(1).padded());
    EXPECT_EQ(draft.plan.comm_bytes.all_gather, 3 * shard_bytes) << "to three others";
    EXPECT_EQ(task.cost.sent_bytes, static_cast<double>(3 * shard_bytes));
  }
}

}  // namespace
}  // namespace strata::runtime
