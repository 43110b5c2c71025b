#include "runtime/plan/layout/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/failure.h"

namespace strata::runtime {
namespace {

Recipe::Zero zero_of(int stage, std::int64_t parameters, std::int64_t gradients, std::int64_t optimizer) {
  Recipe::Zero zero;
  zero.stage = stage;
  zero.parameters_group = parameters;
  zero.gradients_group = gradients;
  zero.optimizer_group = optimizer;
  return zero;
}

TEST(Placement, AllMeansTheNextKindsGroup) {
  const Mesh mesh{8};
  const Placement all = placement_of(zero_of(3, kAllRanks, kAllRanks, kAllRanks));
  EXPECT_EQ(all.parameters.pieces(mesh), 8);
  EXPECT_EQ(all.optimizer.pieces(mesh), 8);
  const Placement grouped = placement_of(zero_of(3, kAllRanks, kAllRanks, 4));
  EXPECT_EQ(grouped.parameters.pieces(mesh), 4);
  EXPECT_EQ(grouped.gradients.pieces(mesh), 4);
  EXPECT_EQ(placement_of(zero_of(1, kAllRanks, kAllRanks, 4)).parameters.pieces(mesh), 1)
      << "stage 1 does not divide them";
}

TEST(Placement, AMeshHasGroupsForShardedState) {
  const auto groups = [](const Recipe::Zero& zero) { return mesh_of(placement_of(zero), Mesh{8}).groups; };
  EXPECT_THAT(groups(zero_of(3, 2, kAllRanks, 4)), testing::ElementsAre(2, 4));
  EXPECT_THAT(groups(zero_of(3, 1, 2, 4)), testing::ElementsAre(2, 4));
  EXPECT_THAT(groups(zero_of(3, kAllRanks, 2, kAllRanks)), testing::ElementsAre(2));
  EXPECT_THAT(groups(zero_of(2, 2, kAllRanks, 4)), testing::ElementsAre(4));
  EXPECT_THAT(groups(zero_of(3, 1, kAllRanks, 8)), testing::IsEmpty());
}

TEST(Placement, ANodeGroupConsistsOfItsRanks) {
  const Placement hybrid = placement_of(zero_of(3, kRanksOfANode, kAllRanks, kAllRanks), 4);
  EXPECT_EQ(hybrid.parameters.pieces(Mesh{8}), 4);
  EXPECT_EQ(hybrid.optimizer.pieces(Mesh{8}), 8);
  EXPECT_EQ(placement_of(zero_of(3, kAllRanks, kAllRanks, kRanksOfANode), 4).parameters.pieces(Mesh{8}), 4);
}

TEST(Placement, GradientGroupsHoldTheSums) {
  const Mesh mesh{8};
  EXPECT_EQ(placement_of(zero_of(3, kAllRanks, 2, 4)).sums().pieces(mesh), 2);
  EXPECT_EQ(placement_of(zero_of(1, kAllRanks, 2, 4)).sums().pieces(mesh), 4)
      << "in stage 1, those of the updated parameters";
  EXPECT_EQ(placement_of(zero_of(0, kAllRanks, 2, 4)).sums().pieces(mesh), 1);
}

TEST(Placement, RefusesGroupsThatDoNotDivideEachOther) {
  require_groups(zero_of(3, 2, kAllRanks, 4), {8});
  require_groups(zero_of(3, 2, 4, 4), {8});
  EXPECT_FAILURE(require_groups(zero_of(1, kAllRanks, kAllRanks, 3), {8}), Exit::usage,
                 "zero.optimizer_group = 3 does not divide the run's 8 ranks: give 1, 2, 4 or \"all\"");
  EXPECT_FAILURE(require_groups(zero_of(3, 4, kAllRanks, 2), {8}), Exit::usage,
                 "zero.parameters_group = 4 does not divide the 2 ranks that hold the optimizer's state: give 1 or "
                 "\"all\"");
  require_groups(zero_of(3, kAllRanks, 2, kAllRanks), {8});
  require_groups(zero_of(3, 1, 2, 4), {8});
  EXPECT_FAILURE(require_groups(zero_of(3, kAllRanks, 4, 2), {8}), Exit::usage,
                 "zero.gradients_group = 4 does not divide the 2 ranks that hold the optimizer's state: give 1 or "
                 "\"all\"");
  EXPECT_FAILURE(require_groups(zero_of(3, 4, 2, kAllRanks), {8}), Exit::usage,
                 "zero.parameters_group = 4 does not divide the 2 ranks that hold the gradients: give 1 or \"all\"");
  EXPECT_FAILURE(require_groups(zero_of(3, kAllRanks, kAllRanks, 2), {1}), Exit::usage,
                 "zero.optimizer_group = 2 does not divide the run's 1 rank: give \"all\"");
  EXPECT_FAILURE(require_groups(zero_of(3, kAllRanks, kAllRanks, 16), {8}), Exit::usage,
                 "zero.optimizer_group = 16 does not divide the run's 8 ranks: give 1, 2, 4 or \"all\"");
}

TEST(Placement, ChecksOnlyGroupsThatHaveAnEffect) {
  require_groups(zero_of(0, 3, 5, 7), {8});
  require_groups(zero_of(0, kAllRanks, kAllRanks, 2), {1});
  require_groups(zero_of(1, 3, 5, 4), {8});
  require_groups(zero_of(2, 3, 2, 4), {8});
  require_groups(zero_of(0, kRanksOfANode, kRanksOfANode, kRanksOfANode), {5}, {0, 0, 1, 1, 2});
  EXPECT_FAILURE(require_groups(zero_of(2, 3, 3, 4), {8}), Exit::usage,
                 "zero.gradients_group = 3 does not divide the 4 ranks that hold the optimizer's state: give 1, 2 or "
                 "\"all\"");
}

TEST(Placement, RefusesUnequalNodesIfGroupsAreNodes) {
  const Recipe::Zero hybrid = zero_of(3, kRanksOfANode, kAllRanks, kAllRanks);
  require_groups(hybrid, {4, {}, 4});
  require_groups(hybrid, {4, {}, 2}, {0, 0, 1, 1});
  require_groups(zero_of(3, 2, kAllRanks, kAllRanks), {4}, {0, 0, 0, 1});
  EXPECT_FAILURE(
      require_groups(hybrid, {5}, {0, 0, 1, 1, 2}), Exit::usage,
      "zero.parameters_group = \"node\" needs the same number of ranks on every node, but these have 2, 2 and 1 ranks: "
      "start the same number on each, or give \"all\"");
  EXPECT_FAILURE(require_groups(zero_of(1, kAllRanks, kAllRanks, kRanksOfANode), {4}, {0, 1, 0, 1}), Exit::usage,
                 "zero.optimizer_group = \"node\" needs the ranks of each node to be consecutive, but they alternate "
                 "between nodes: start them node by node (mpirun --map-by slot, srun --distribution=block)");
  EXPECT_FAILURE(require_groups(zero_of(3, 4, kAllRanks, kRanksOfANode), {4, {}, 2}, {0, 0, 1, 1}), Exit::usage,
                 "zero.parameters_group = 4 does not divide the 2 ranks that hold the optimizer's state: give 1 or "
                 "\"all\"");
}

// Equal nodes may still have different parts of the layers or of a pipeline's stages.
TEST(Placement, RefusesNodesThatDivideLayersOrStagesUnevenly) {
  const Recipe::Zero hybrid = zero_of(3, kRanksOfANode, kAllRanks, kAllRanks);
  const auto nodes = [](int each, int world) { return Mesh{world, {}, each}.nodes(); };
  EXPECT_FAILURE(
      require_groups(hybrid, {12, {}, 3, 2}, nodes(3, 12)), Exit::usage,
      "zero.parameters_group = \"node\" needs complete layers on every node, but parallel.tensor = 2 does not "
      "divide the 3 ranks of a node: start a multiple of 2 on each, or give \"all\"");
  EXPECT_FAILURE(require_groups(hybrid, {12, {}, 4, 1, 2}, nodes(4, 12)), Exit::usage,
                 "zero.parameters_group = \"node\" needs the data ranks of a pipeline stage to divide evenly over "
                 "nodes, but 6 do not divide into nodes of 4: change the number of nodes or the ranks per node, or "
                 "give a number of ranks or \"all\"");
  require_groups(hybrid, {12, {}, 6, 2, 2}, nodes(6, 12));
  require_groups(hybrid, {8, {}, 2, 4}, nodes(2, 8));  // a data rank is on two nodes: a group of one
}

TEST(Placement, NotesGroupsOfUnshardedState) {
  EXPECT_THAT(notes_of_groups(zero_of(3, 2, 2, 2)), testing::IsEmpty());
  EXPECT_THAT(
      notes_of_groups(zero_of(1, 2, kAllRanks, 2)),
      testing::ElementsAre("zero.parameters_group has no effect at zero.stage = 1: it applies from stage 3 on"));
}

}  // namespace
}  // namespace strata::runtime
