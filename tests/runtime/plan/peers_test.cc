#include "runtime/plan/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/draft.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// The peers of 8 ranks at stage 3 whose groups have this many ranks; 0: all.
StepPlan plan_of(int parameters, int gradients, int optimizer) {
  PlanCase c = make_case(small(false), 8, 1, 3, device::DType::bf16, false, false, 1, {});
  c.request.placement.parameters.group = parameters;
  c.request.placement.gradients.group = gradients;
  c.request.placement.optimizer.group = optimizer;
  return Draft(c.request).plan;
}

std::vector<int> sorted(comm::Group group) {
  std::ranges::sort(group.members);
  return group.members;
}

TEST(Peers, AreTheRanksThatShareAPiece) {
  const StepPlan plan = plan_of(2, 4, 8);
  EXPECT_THAT(sorted(group_of(plan, Peers::parameters, 5)), ElementsAre(4, 5));
  EXPECT_THAT(sorted(group_of(plan, Peers::updates, 5)), ElementsAre(1, 3, 5, 7)) << "with its half of the parameters";
  EXPECT_THAT(sorted(group_of(plan, Peers::sums, 5)), ElementsAre(1, 5)) << "with its quarter of the sums";
  EXPECT_EQ(group_of(plan, Peers::gradients, 5).size(), 8);
  EXPECT_TRUE(plan.copies_sums() && plan.gathers_sums() && plan.gathers_updated());
}

TEST(Peers, AreOnePerNodeIfNodesSumTheirGradients) {
  PlanCase c = make_case(small(false), 8, 1, 3, device::DType::bf16, false, false, 1, {});
  c.request.mesh.node = 4;
  c.request.reduce_group = 4;
  const StepPlan plan = Draft(c.request).plan;
  EXPECT_THAT(group_of(plan, Peers::node, 5).members, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(group_of(plan, Peers::gradients, 5).members, ElementsAre(1, 5));
  c.request.reduce_group = 2;
  EXPECT_EQ(group_of(Draft(c.request).plan, Peers::gradients, 5).size(), 8) << "the runs do not match the nodes";
}

TEST(Peers, AreAllRanksIfARankWouldBeAlone) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const StepPlan flat = plan_of(0, 0, 0);
  for (const Peers peers : {Peers::parameters, Peers::updates, Peers::gradients, Peers::sums})
    EXPECT_THAT(group_of(flat, peers, 3).members, ElementsAreArray(all));
  EXPECT_FALSE(flat.copies_sums() || flat.gathers_sums() || flat.gathers_updated());
  EXPECT_THAT(group_of(plan_of(1, 0, 0), Peers::parameters, 3).members, ElementsAreArray(all));
}

TEST(Peers, AGroupIsTheSameForItsMembers) {
  const StepPlan plan = plan_of(2, 4, 8);
  for (const Peers peers : {Peers::parameters, Peers::updates, Peers::gradients, Peers::sums})
    for (int rank = 0; rank < 8; ++rank) {
      const comm::Group group = group_of(plan, peers, rank);
      EXPECT_EQ(group.rank(group.index), rank);
      for (const int other : group.members) EXPECT_EQ(group_of(plan, peers, other).members, group.members);
    }
}

}  // namespace
}  // namespace strata::runtime
