#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "models/parameter.h"

namespace strata::models {
namespace {

// Element i of shard v's piece of a [4, 12] matrix whose dimension `d` has `segments` segments.
std::vector<std::size_t> piece_of(std::size_t d, std::size_t segments, std::size_t shards, std::size_t v) {
  Parameter p{"w", {4, 12}, 0, true, {}, false};
  p.slice = {d, segments, shards};
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < p.piece_size(v); ++i) places.push_back(p.piece(v).full_index(i));
  return places;
}

TEST(Slice, APieceTakesAPartOfEachSegment) {
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(piece_of(0, 1, 2, 1),
            (Places{24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47}))
      << "rows 2 and 3";
  EXPECT_EQ(piece_of(1, 1, 4, 2), (Places{6, 7, 8, 18, 19, 20, 30, 31, 32, 42, 43, 44})) << "columns 6 to 8";
  EXPECT_EQ(piece_of(1, 3, 2, 1),
            (Places{2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31, 34, 35, 38, 39, 42, 43, 46, 47}))
      << "the second half of each segment of four columns";
}

TEST(Slice, PiecesCoverTheTensorOnceAndCountEarlierElements) {
  for (const std::size_t segments : {1u, 3u}) {
    constexpr std::size_t kShards = 4;
    Parameter p{"w", {5, 24, 3}, 0, true, {}, false};
    p.slice = {1, segments, kShards};
    std::vector<int> seen(p.size());
    for (std::size_t v = 0; v < kShards; ++v) {
      const Piece piece = p.piece(v);
      for (std::size_t i = 0; i < p.piece_size(v); ++i) {
        ++seen[piece.full_index(i)];
        EXPECT_EQ(piece.before(piece.full_index(i)), i);
      }
      std::size_t next = 7;
      piece.for_contiguous(7, p.piece_size(v) - 2, [&](std::size_t at, std::size_t whole, std::size_t count) {
        EXPECT_EQ(at, next);
        for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(piece.full_index(at + i), whole + i);
        next = at + count;
      });
      EXPECT_EQ(next, p.piece_size(v) - 2);
      EXPECT_EQ(piece.before(p.size()), p.piece_size(v));
    }
    EXPECT_EQ(seen, std::vector<int>(p.size(), 1));
  }
}

// Four shards share two parts, which the first and the third have.
TEST(Slice, TheFirstShardHoldsASharedPart) {
  Parameter p{"k", {4, 12}, 0, true, {}, false};
  p.slice = {.dimension = 0, .segments = 1, .shards = 4, .sharers = 2};
  const std::size_t sizes[] = {24, 0, 24, 0};
  for (std::size_t v = 0; v < 4; ++v) {
    EXPECT_EQ(p.piece_size(v), sizes[v]);
    EXPECT_EQ(p.piece(v).full_index(5), v / 2 * 24 + 5);
  }
  EXPECT_EQ(p.piece_capacity(), 24u);
}

// With a vocabulary of 10 words, the last of four shards has one word, and the last three of eight have none.
TEST(Slice, TheLastShardsOfAVocabularyHaveFewerRows) {
  for (const std::size_t shards : {4u, 8u}) {
    Parameter p{"w", {10, 3}, 0, true, {}, false};
    p.slice = {0, 1, shards};
    const std::size_t rows = shards == 4 ? 3 : 2;
    EXPECT_EQ(p.piece_capacity(), 3 * rows);
    std::vector<int> seen(p.size());
    for (std::size_t v = 0; v < shards; ++v) {
      const std::size_t first = std::min<std::size_t>(10, v * rows), size = 3 * (std::min(10 - first, rows));
      EXPECT_EQ(p.piece_size(v), size) << v;
      EXPECT_EQ(p.piece(v).before(p.size()), size) << v;
      for (std::size_t i = 0; i < size; ++i) {
        EXPECT_EQ(p.piece(v).full_index(i), 3 * first + i);
        ++seen[p.piece(v).full_index(i)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(p.size(), 1));
  }
}

}  // namespace
}  // namespace strata::models
