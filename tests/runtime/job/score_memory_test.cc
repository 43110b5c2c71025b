#include "runtime/job/score_memory.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

using device::ClassTarget;

ScoreMemory memory_of(std::size_t classes, ClassTarget target, std::uint64_t rows, int ranks, std::size_t at_once) {
  models::Classes made;
  made.names.resize(classes);
  made.target = target;
  return {made, rows, ranks, at_once};
}

TEST(ScoreMemoryTest, EachRankKeepsColumnsOfSomeClasses) {
  EXPECT_EQ(memory_of(5, ClassTarget::one, 1000, 1, 16).bytes, 1000u * (4 + 5 * 8));
  EXPECT_EQ(memory_of(5, ClassTarget::one, 1000, 2, 16).bytes, 1000u * (4 + 3 * 8));
  EXPECT_EQ(memory_of(2, ClassTarget::one, 1000, 1, 16).bytes, 1000u * (4 + 8)) << "the second class alone";
  EXPECT_EQ(memory_of(2, ClassTarget::many, 1000, 1, 16).bytes, 1000u * (4 + 2 * 8));
  EXPECT_EQ(memory_of(1, ClassTarget::number, 1000, 8, 16).bytes, 1000u * 8);
  EXPECT_EQ(memory_of(3, ClassTarget::none, 1000, 2, 16).bytes, 1000u * sizeof(RowLocation));
}

TEST(ScoreMemoryTest, KeepsOnlyCountsForManyClasses) {
  const ScoreMemory most = memory_of(kMaxTabled, ClassTarget::one, 1000, 1, 16);
  EXPECT_TRUE(most.curves);
  EXPECT_EQ(most.words, 1 + kMaxTabled);
  const ScoreMemory more = memory_of(kMaxTabled + 1, ClassTarget::one, 1000, 1, 16);
  EXPECT_FALSE(more.curves);
  EXPECT_EQ(more.bytes, 0u);
  EXPECT_EQ(more.words, 2u) << "the label and what was said";
}

TEST(ScoreMemoryTest, LabelsOfManyClassesHaveAWordForEach32) {
  const ScoreMemory few = memory_of(31, ClassTarget::many, 1000, 1, 16),
                    more = memory_of(90, ClassTarget::many, 1000, 1, 16);
  EXPECT_EQ(few.label_words, 1u);
  EXPECT_EQ(more.label_words, 3u);
  EXPECT_EQ(more.words, 3u + 90);
  EXPECT_EQ(more.bytes, 1000u * (3 * 4 + 90 * 8));
  EXPECT_EQ(memory_of(90, ClassTarget::one, 1000, 1, 16).label_words, 1u);
  const ScoreMemory counted = memory_of(kMaxTabled + 1, ClassTarget::many, 1000, 1, 16);
  EXPECT_EQ(counted.words, 2u * 33) << "a set of labels and a set of predictions";
  EXPECT_EQ(counted.bytes, 0u);
}

// With 2 KiB per message, an evaluation needed some 10^4 rounds of consensus.
TEST(ScoreMemoryTest, ChunksAreLargeButLimitedOverAllRanks) {
  const auto chunk = [](int ranks) { return memory_of(20, ClassTarget::one, 10'000'000, ranks, 256).chunk_bytes; };
  EXPECT_GT(chunk(8), std::size_t{1} << 19);
  EXPECT_LE(chunk(8), (std::size_t{1} << 20) + 4096);
  EXPECT_LE(512 * chunk(512), std::size_t{64} << 20);
  EXPECT_EQ(memory_of(20, ClassTarget::none, 10'000'000, 8, 256).rounds, 1u) << "a prediction keeps every round";
  EXPECT_LT(memory_of(3, ClassTarget::one, 40, 1, 16).chunk_bytes, 4096u) << "no more than exist";
  // A round that is longer than a chunk still fits.
  const ScoreMemory wide = memory_of(1000, ClassTarget::one, 100'000, 1, 8192);
  EXPECT_EQ(wide.rounds, 1u);
  EXPECT_GE(wide.chunk_bytes, 8192u * 1001 * 4);
}

}  // namespace
}  // namespace strata::runtime
