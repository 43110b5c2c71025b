#include "models/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace strata::models {
namespace {

using ::testing::ElementsAre;

// Positions are those of transformers' create_position_ids_from_input_ids, minus the number of the padding token.
TEST(BatchTest, PaddingHasNoPosition) {
  // The documents have 4, 1, 3 and 2 rows, and one row belongs to none.
  std::vector<std::uint32_t> tokens = {5, 1, 6, 1, 1, 1, 7, 8, 9, 1, 0}, positions = {0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 0};
  BatchRows rows{.tokens = tokens, .labels = {}, .positions = positions, .documents = {}};
  place_padding(rows);
  EXPECT_THAT(positions, ElementsAre(0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 0)) << "most models have no such token";
  rows.padding = 1;
  place_padding(rows);
  EXPECT_THAT(positions, ElementsAre(1, 0, 2, 0, 0, 0, 1, 2, 1, 0, 1));
}

TEST(BatchTest, RowsAgreeWithTheShape) {
  std::vector<std::byte> memory(BatchShape{.tokens = 2}.bytes());
  EXPECT_EQ((BatchShape{.tokens = 2}).rows(memory.data()).padding, std::nullopt);
  const BatchRows rows = BatchShape{.tokens = 2, .padding = 3}.rows(memory.data());
  EXPECT_EQ(rows.padding, 3u);
  EXPECT_EQ(rows.subrows(1, 1).padding, 3u);
}

// The words of the rows' sets of classes form a separate column.
TEST(BatchTest, SetsOfClassesFollowTheRowsOfTheLoss) {
  const BatchShape none{.tokens = 8, .loss_rows = 3}, some{.tokens = 8, .loss_rows = 3, .class_words = 2},
      all{.tokens = 8, .class_words = 2};
  EXPECT_EQ(some.bytes(), none.bytes() + 3 * 2 * sizeof(std::uint32_t));
  EXPECT_EQ(all.bytes(), (BatchShape{.tokens = 8}).bytes() + 8 * 2 * sizeof(std::uint32_t));
  std::vector<std::byte> memory(some.bytes());
  EXPECT_EQ(none.at(memory.data()).class_sets, nullptr);
  const BatchRows rows = some.rows(memory.data());
  ASSERT_EQ(rows.class_sets.size(), 6u);
  EXPECT_EQ(some.at(memory.data()).class_sets, rows.class_sets.data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(rows.class_sets.data() + 6), memory.data() + memory.size());
  EXPECT_TRUE(rows.subrows(0, 4).class_sets.empty());
}

}  // namespace
}  // namespace strata::models
