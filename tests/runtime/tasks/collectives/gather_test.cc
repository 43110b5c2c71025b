#include "runtime/tasks/collectives/gather.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

struct Added {
  Task task;
  std::uint64_t sent, between;  // planned
};

// Runs over 4 ranks at stage 3, 2 per node, with these numbers of ranks in the groups that hold and that update
// parameters; 0: all.
template <typename T>
Added add(int held, int updated, const T& added_with) {
  PlanCase c = make_case(small(false), 4, 1, 3, device::DType::bf16, false, false, 1, {});
  c.request.mesh.node = 2;
  c.request.placement.parameters.group = held;
  c.request.placement.gradients.group = c.request.placement.optimizer.group = updated;
  Draft draft(c.request);
  const int buffer = draft.add_buffer("shard", Kind::parameters, Tier::device, draft.layout(1).padded() * 4, true);
  const int whole = draft.add_buffer("whole", Kind::parameters, Tier::device, draft.layout(1).padded() * 4, false);
  added_with(draft, buffer, whole);
  return {draft.plan.tasks[0], draft.plan.comm_bytes.all_gather, draft.plan.comm_bytes.between_nodes};
}

std::size_t shard_bytes() {
  const PlanCase c = make_case(small(false), 4, 1, 3, device::DType::bf16, false, false, 1, {});
  return Draft(c.request).layout(1).shard() * 2;
}

TEST(Gather, CollectsTheShardsOfAUnit) {
  const auto gather = [](Draft& draft, int shard, int whole) {
    Gather{.which = {1}, .shard = draft.whole(shard), .parameters = whole}.add(draft);
  };
  const Added all = add(0, 0, gather), two = add(2, 0, gather);
  EXPECT_EQ(all.task.buffer(Role::shard), 0);
  EXPECT_EQ(all.task.uses.back().buffer, 1);
  EXPECT_EQ(all.task.uses.back().access, Access::write);
  EXPECT_EQ(all.task.end, 4 * shard_bytes() / 2);
  EXPECT_EQ(all.sent, 3 * shard_bytes()) << "to three others";
  EXPECT_EQ(all.task.cost.sent_bytes, static_cast<double>(3 * shard_bytes()));
  EXPECT_EQ(two.task.end, all.task.end);
  EXPECT_EQ(two.sent, 2 * shard_bytes()) << "half a unit to the other rank of its group";
  EXPECT_EQ(all.between, shard_bytes()) << "once to the other node, which passes it on";
  EXPECT_EQ(all.task.cost.between_bytes, static_cast<double>(shard_bytes()));
  EXPECT_EQ(two.between, 0u) << "its group is a node";
}

TEST(GatherUpdated, SendsUpdatedPartsToTheirHolders) {
  const auto spread = [](Draft& draft, int held, int) { GatherUpdated{.unit = 1, .parameters = held}.add(draft); };
  const Added of_two = add(2, 0, spread);
  EXPECT_EQ(of_two.task.uses.back().access, Access::update) << "its own part is already there";
  EXPECT_EQ(of_two.task.end, 2 * shard_bytes() / 2);
  EXPECT_EQ(of_two.sent, shard_bytes()) << "to the rank of the other group with the same half";
  EXPECT_EQ(of_two.between, shard_bytes()) << "which is on the other node";
  EXPECT_EQ(add(1, 0, spread).sent, 3 * shard_bytes());
  EXPECT_EQ(add(1, 2, spread).sent, 2 * shard_bytes()) << "each of two updates half of all";
}

TEST(GatherSums, SendsSumsToTheRanksThatUpdateThem) {
  const auto sums = [](Draft& draft, int sum, int) { GatherSums{.unit = 1, .sum = sum}.add(draft); };
  EXPECT_EQ(add(1, 1, sums).sent, 3 * 2 * shard_bytes()) << "fp32";
  EXPECT_EQ(add(2, 2, sums).sent, 2 * shard_bytes());
}

}  // namespace
}  // namespace strata::runtime
