#include "runtime/plan/mesh.h"

#include <fmt/format.h>
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

TEST(Cut, PiecesFollowEachOtherInRankOrder) {
  const Mesh mesh{4};
  const Cut cut = Cut{.elements = 40}.recut(mesh, Axis::data);
  EXPECT_EQ(cut.size(), 10u);
  std::size_t at = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const models::ElementRange piece = cut.piece(mesh.at(rank));
    EXPECT_EQ(piece.begin, at);
    at = piece.end;
  }
  EXPECT_EQ(at, 40u);
}

TEST(Cut, WhatIsNotCutIsWholeOnEveryRank) {
  const Mesh mesh{4};
  const Cut cut = Cut{Axis::data, 4, 40}.recut(mesh, Axis::none);
  EXPECT_EQ(cut.pieces, 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cut.piece(mesh.at(rank)).begin, 0u);
    EXPECT_EQ(cut.piece(mesh.at(rank)).end, 40u);
  }
}

// Against the elements of the range and of the pieces, one by one.
TEST(Cut, PortionsAreThoseOfAllPieces) {
  for (const int ranks : {1, 2, 5}) {
    const Mesh mesh{ranks};
    const Cut cut{Axis::data, ranks, 10 * static_cast<std::size_t>(ranks)};
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
