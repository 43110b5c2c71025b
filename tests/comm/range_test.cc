#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "comm/communicator.h"

namespace strata::comm {
namespace {

TEST(ShardedRange, PiecesTileTheRangeInRankOrder) {
  EXPECT_TRUE(rc::check([] {
    const std::size_t shard = *rc::gen::inRange<std::size_t>(1, 1000);
    const int ranks = *rc::gen::inRange(1, 9);
    const std::size_t flat = shard * static_cast<std::size_t>(ranks);
    const std::size_t begin = *rc::gen::inRange<std::size_t>(0, flat + 1);
    const std::size_t end = *rc::gen::inRange<std::size_t>(begin, flat + 1);
    const ShardedRange range{shard, begin, end};
    std::size_t at = begin;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto piece = range.owned(rank);
      if (piece.bytes() == 0) continue;
      RC_ASSERT(piece.begin == at);
      RC_ASSERT(piece.begin >= static_cast<std::size_t>(rank) * shard);
      RC_ASSERT(piece.end <= static_cast<std::size_t>(rank + 1) * shard);
      at = piece.end;
    }
    RC_ASSERT(at == end);
  }));
}

TEST(ShardedRange, RankOutsideTheRangeOwnsNothing) {
  const ShardedRange range{100, 150, 180};
  EXPECT_EQ(range.owned(0).bytes(), 0u);
  EXPECT_EQ(range.owned(1).begin, 150u);
  EXPECT_EQ(range.owned(1).end, 180u);
  EXPECT_EQ(range.owned(2).bytes(), 0u);
}

}  // namespace
}  // namespace strata::comm
