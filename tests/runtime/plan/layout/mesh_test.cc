#include "runtime/plan/layout/mesh.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace strata::runtime {
namespace {

// Every micro-batch of two steps occurs once, and those of a round are in rank order.
TEST(Mesh, MicroBatchesCountTheRanksOfARoundFirst) {
  const Mesh mesh{3};
  std::vector<std::uint64_t> all;
  for (const std::uint64_t first : {0, 6})
    for (std::uint64_t g = 0; g < 2; ++g)
      for (int rank = 0; rank < mesh.world; ++rank) all.push_back(mesh.micro_batch(first, g, mesh.at(rank)));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
}

// For every chain of groups of 12 ranks: each shard has one owner, in rank order if there are no groups. A rank's piece
// in larger groups lies within its piece in smaller groups.
TEST(Mesh, PiecesOfLargerGroupsAreWithinThoseOfSmallerOnes) {
  const std::vector<std::vector<int>> chains = {{}, {2}, {3}, {6}, {2, 4}, {2, 6}, {3, 6}};
  for (const std::vector<int>& groups : chains) {
    SCOPED_TRACE(fmt::format("groups of {}", fmt::join(groups, ", ")));
    const Mesh mesh{12, groups};
    const Cut shards{12, 1, 120};
    std::vector<int> owners(12);
    for (int rank = 0; rank < 12; ++rank) {
      const Coordinates at = mesh.at(rank);
      EXPECT_EQ(at.data, rank);
      if (groups.empty()) {
        EXPECT_EQ(at.shard, rank);
      }
      ++owners[static_cast<std::size_t>(at.shard)];
      models::ElementRange inner = shards.piece(at);
      for (auto size = groups.rbegin(); size != groups.rend(); ++size) {
        const models::ElementRange outer = shards.in_pieces(*size).piece(at);
        EXPECT_LE(outer.begin, inner.begin);
        EXPECT_GE(outer.end, inner.end);
        inner = outer;
      }
    }
    EXPECT_THAT(owners, testing::Each(1));
  }
}

// A group has every piece once, in order. The ranks that share a piece come one from each group.
TEST(Mesh, GroupsHoldAllPiecesAndShareThem) {
  const Mesh mesh{8, {2, 4}};
  const Cut shards{8, 1, 80};
  for (int rank = 0; rank < 8; ++rank)
    for (const int size : {2, 4, 8}) {
      const comm::Group group = mesh.group(rank, size, 1);
      ASSERT_EQ(group.size(), size);
      EXPECT_EQ(group.rank(group.index), rank);
      for (int i = 0; i < size; ++i) {
        EXPECT_EQ(group.rank(i) / size, rank / size) << "neighbours";
        EXPECT_EQ(shards.in_pieces(size).piece(mesh.at(group.rank(i))).begin, shards.in_pieces(size).piece(i).begin);
      }
      const comm::Group sharing = mesh.group(rank, 8, size);
      ASSERT_EQ(sharing.size(), 8 / size);
      for (const int other : sharing.members)
        EXPECT_EQ(shards.in_pieces(size).piece(mesh.at(other)).begin,
                  shards.in_pieces(size).piece(mesh.at(rank)).begin);
    }
}

TEST(Mesh, RanksPerNodeAreKnownForEqualNodes) {
  EXPECT_EQ(ranks_per_node({}, 6), 6) << "all on one";
  EXPECT_EQ(ranks_per_node({0, 0, 1, 1}, 4), 2);
  EXPECT_EQ(ranks_per_node({0, 1, 2}, 3), 1);
  EXPECT_EQ(ranks_per_node({0, 0, 0}, 3), 3);
  EXPECT_EQ(ranks_per_node({0, 0, 1}, 3), 0) << "of different sizes";
  EXPECT_EQ(ranks_per_node({0, 1, 0, 1}, 4), 0) << "distributed in turn";
  EXPECT_THAT((Mesh{4, {}, 2}.nodes()), testing::ElementsAre(0, 0, 1, 1));
  EXPECT_THAT((Mesh{4, {}, 4}.nodes()), testing::IsEmpty());
  EXPECT_THAT((Mesh{4}.nodes()), testing::IsEmpty());
}

// Whatever the mesh: coordinates are unique and lead back to their rank, and the groups of each axis partition the
// world, in the order of the axis.
RC_GTEST_PROP(Mesh, CoordinatesAndGroupsCoverTheWorldOnce, ()) {
  const int tensor = *rc::gen::element(1, 2, 4, 8), data = *rc::gen::inRange(1, 9), stages = *rc::gen::inRange(1, 6);
  Mesh mesh{tensor * data * stages, {}, 0, tensor, stages};
  if (data % 2 == 0 && data > 2 && *rc::gen::arbitrary<bool>()) mesh.groups = {2};
  RC_ASSERT(mesh.data() == data);
  std::set<std::tuple<int, int, int>> seen;
  for (int rank = 0; rank < mesh.world; ++rank) {
    const Coordinates at = mesh.at(rank);
    RC_ASSERT(at.world == rank);
    RC_ASSERT((at.tensor >= 0 && at.tensor < tensor && at.data >= 0 && at.data < data));
    RC_ASSERT((at.stage >= 0 && at.stage < stages));
    RC_ASSERT(seen.insert({at.stage, at.data, at.tensor}).second);
    RC_ASSERT(std::tuple(at.stage, at.data, at.tensor) == *seen.rbegin());  // tensor fastest, then data, then stage
    RC_ASSERT(mesh.rank_of(at.data, at.tensor, at.stage) == rank);
    RC_ASSERT(at.stage * mesh.ranks_per_stage() + mesh.place_in_stage(at) == rank);
    RC_ASSERT(mesh.place_in_stage(at) < mesh.ranks_per_stage());
    const auto coordinate = [](const Coordinates& c, Axis axis) {
      return axis == Axis::data ? c.data : axis == Axis::tensor ? c.tensor : c.stage;
    };
    for (const auto& [axis, size] : {std::pair{Axis::data, data}, {Axis::tensor, tensor}, {Axis::stage, stages}}) {
      const comm::Group group = mesh.along(axis, rank);
      RC_ASSERT(group.size() == size);
      RC_ASSERT(group.rank(group.index) == rank);
      for (int i = 0; i < size; ++i) {
        const Coordinates other = mesh.at(group.rank(i));
        RC_ASSERT(coordinate(other, axis) == i);
        for (const Axis same : {Axis::data, Axis::tensor, Axis::stage})
          RC_ASSERT(same == axis || coordinate(other, same) == coordinate(at, same));
        RC_ASSERT(mesh.along(axis, group.rank(i)).members == group.members);
      }
    }
    RC_ASSERT(mesh.along(Axis::none, rank).members == std::vector<int>{rank});
    // Only data ranks have shards.
    comm::Group shards = mesh.group(rank, data, 1);
    RC_ASSERT(mesh.at(shards.rank(at.shard)).world == rank);
    std::ranges::sort(shards.members);
    RC_ASSERT(shards.members == mesh.along(Axis::data, rank).members);
  }
}

TEST(Mesh, NeighboursShareLayersAndStagesAreFarApart) {
  const Mesh mesh{8, {}, 4, 2, 2};
  EXPECT_THAT(mesh.along(Axis::tensor, 5).members, testing::ElementsAre(4, 5));
  EXPECT_THAT(mesh.along(Axis::data, 5).members, testing::ElementsAre(5, 7));
  EXPECT_THAT(mesh.along(Axis::stage, 5).members, testing::ElementsAre(1, 5));
  EXPECT_THAT(mesh.group(5, 2, 1).members, testing::ElementsAre(5, 7));
  EXPECT_EQ(mesh.micro_batch(4, 1, mesh.at(7)), 7u) << "a replica's ranks take the same one";
  EXPECT_EQ(mesh.micro_batch(4, 1, mesh.at(2)), 7u);
}

TEST(Mesh, DataRanksPerNodeCountReplicasNotRanks) {
  EXPECT_EQ((Mesh{8, {}, 2}.data_per_node()), 2);
  EXPECT_EQ((Mesh{8, {}, 0}.data_per_node()), 0) << "of different sizes";
  EXPECT_EQ((Mesh{8, {}, 4, 2, 1}.data_per_node()), 2);
  EXPECT_EQ((Mesh{8, {}, 8, 2, 2}.data_per_node()), 2) << "both stages on one node";
  EXPECT_EQ((Mesh{8, {}, 2, 4, 1}.data_per_node()), 1) << "a replica on two nodes";
  EXPECT_EQ((Mesh{12, {}, 4, 1, 2}.data_per_node()), 0) << "stages of six ranks on nodes of four";
}

TEST(Cut, PiecesFollowEachOtherInRankOrder) {
  const Mesh mesh{4};
  const Cut cut{4, 1, 40};
  EXPECT_EQ(cut.size(), 10u);
  std::size_t at = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const models::ElementRange piece = cut.piece(mesh.at(rank));
    EXPECT_EQ(piece.begin, at);
    at = piece.end;
  }
  EXPECT_EQ(at, 40u);
}

TEST(Cut, ASinglePieceIsCompleteOnEveryRank) {
  const Mesh mesh{4};
  const Cut cut = Cut{4, 1, 40}.in_pieces(1);
  EXPECT_EQ(cut.copies, 4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cut.piece(mesh.at(rank)).begin, 0u);
    EXPECT_EQ(cut.piece(mesh.at(rank)).end, 40u);
  }
}

// Against the elements of the range and of the pieces, one by one.
TEST(Cut, PortionsAreThoseOfAllPieces) {
  for (const int ranks : {1, 2, 5}) {
    const Mesh mesh{ranks};
    const Cut cut{ranks, 1, 10 * static_cast<std::size_t>(ranks)};
    for (std::size_t begin = 0; begin < cut.elements; begin += 7)
      for (std::size_t end = begin; end <= cut.elements; end += 3) {
        std::size_t least = end - begin, most = 0, first = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          std::size_t own = 0;
          for (std::size_t i = begin; i < end; ++i) own += i / 10 == static_cast<std::size_t>(rank);
          if (rank == 0) first = own;
          least = std::min(least, own);
          most = std::max(most, own);
          EXPECT_EQ(cut.piece_of({begin, end}, mesh.at(rank)).size(), own);
        }
        const Portions portions = portions_of({begin, end}, cut);
        SCOPED_TRACE(fmt::format("[{}, {}) over {} ranks", begin, end, ranks));
        EXPECT_EQ(portions.first, first);
        EXPECT_EQ(portions.least, least);
        EXPECT_EQ(portions.most, most);
      }
  }
}

// Coordinates are only given if ranks share the model. Otherwise a rank's number is enough.
TEST(Mesh, NamesARankWithItsCoordinates) {
  EXPECT_EQ((Mesh{8, {2}, 4}.name_of(5)), "rank 5");
  const Mesh stages{8, {}, 4, 1, 2};
  EXPECT_EQ(stages.name_of(5), "rank 5 (data 1, stage 1)");
  EXPECT_EQ((Mesh{2, {}, 0, 1, 2}.name_of(1)), "rank 1 (stage 1)");
  EXPECT_EQ((Mesh{8, {}, 0, 2, 2}.name_of(5)), "rank 5 (data 0, tensor 1, stage 1)");
  const std::vector<int> ranks = {4, 5, 6, 7};
  EXPECT_EQ(stages.coordinates_text(ranks), "data 0 to 3, stage 1");
  EXPECT_EQ(Mesh{8}.coordinates_text(ranks), "");
}

}  // namespace
}  // namespace strata::runtime
