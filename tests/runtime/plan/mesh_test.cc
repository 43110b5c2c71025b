#include "runtime/plan/mesh.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::runtime {
namespace {

// Every micro-batch of two steps once, those of a round in rank order.
TEST(Mesh, MicroBatchesCountTheRanksOfARoundFirst) {
  const Mesh mesh{3};
  std::vector<std::uint64_t> all;
  for (const std::uint64_t first : {0, 6})
    for (std::uint64_t g = 0; g < 2; ++g)
      for (int rank = 0; rank < mesh.world; ++rank) all.push_back(mesh.micro_batch(first, g, mesh.at(rank)));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
}

// Of every chain of groups of 12 ranks: shards are dealt out once each, in rank order without groups; and what a rank
// holds of a kind in larger groups lies within what it holds of one in smaller groups.
TEST(Mesh, PiecesOfLargerGroupsLieWithinThoseOfSmallerOnes) {
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

// A group has every piece once, in the order of the pieces; those that share a piece are one of each group.
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

TEST(Mesh, RanksPerNodeAreThoseOfNodesThatAreAlike) {
  EXPECT_EQ(ranks_per_node({}, 6), 6) << "all on one";
  EXPECT_EQ(ranks_per_node({0, 0, 1, 1}, 4), 2);
  EXPECT_EQ(ranks_per_node({0, 1, 2}, 3), 1);
  EXPECT_EQ(ranks_per_node({0, 0, 0}, 3), 3);
  EXPECT_EQ(ranks_per_node({0, 0, 1}, 3), 0) << "of different sizes";
  EXPECT_EQ(ranks_per_node({0, 1, 0, 1}, 4), 0) << "dealt out in turn";
  EXPECT_THAT((Mesh{4, {}, 2}.nodes()), testing::ElementsAre(0, 0, 1, 1));
  EXPECT_THAT((Mesh{4, {}, 4}.nodes()), testing::IsEmpty());
  EXPECT_THAT((Mesh{4}.nodes()), testing::IsEmpty());
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

TEST(Cut, OnePieceIsWholeOnEveryRank) {
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

}  // namespace
}  // namespace strata::runtime
