#include "models/layers/heads/table_tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::models {
namespace {

constexpr auto kCpu = device::Kind::cpu;

struct TableTile {
  std::size_t first, rows, shard, row;

  bool operator==(const TableTile&) const = default;
};

std::vector<TableTile> tiles_of(std::size_t vocabulary, const ShardRange& shards) {
  const TableTiles tiles(vocabulary, kCpu, shards);
  std::vector<TableTile> seen;
  for (std::size_t i = 0; i < tiles.count(); ++i) {
    seen.push_back({tiles.first(i), tiles.rows(i), tiles.shard(i), tiles.row_in_shard(i)});
    EXPECT_EQ(tiles.widths()[tiles.width(i)], tiles.rows(i));
  }
  return seen;
}

TEST(TableTiles, ACompleteTableIsCutFromItsFirstRow) {
  EXPECT_EQ(tiles_of(9000, {}), (std::vector<TableTile>{{0, 4096, 0, 0}, {4096, 4096, 0, 4096}, {8192, 808, 0, 8192}}));
  EXPECT_EQ(tiles_of(10, {}), (std::vector<TableTile>{{0, 10, 0, 0}}));
}

TEST(TableTiles, EachShardHasTilesOfItsOwn) {
  EXPECT_EQ(tiles_of(9999, {0, 2, 2}),
            (std::vector<TableTile>{{0, 4096, 0, 0}, {4096, 904, 0, 4096}, {5000, 4096, 1, 0}, {9096, 903, 1, 4096}}));
  EXPECT_EQ(tiles_of(9999, {1, 1, 2}), (std::vector<TableTile>{{5000, 4096, 0, 0}, {9096, 903, 0, 4096}}));
}

// Memory is planned for the largest number of words of any rank.
TEST(TableTiles, AreTheSameOnEveryRankUpToTheLastWords) {
  for (const std::size_t first : {0, 2}) {
    const TableTiles tiles(9999, kCpu, {first, 2, 4});
    EXPECT_EQ(tiles.shard_words(), 2500u);
    EXPECT_EQ(tiles.widths(), (std::vector<std::size_t>{2500, 2499}));
    EXPECT_EQ(tiles.sum_over_full_shards([](std::size_t rows) { return rows + 1; }), 2 * 2501u);
  }
}

TEST(TableTiles, LastShardsMayHaveNoWords) {
  EXPECT_EQ(tiles_of(10, {4, 4, 8}), (std::vector<TableTile>{{8, 2, 0, 0}}));
  EXPECT_EQ(tiles_of(10, {6, 2, 8}), (std::vector<TableTile>{}));
}

}  // namespace
}  // namespace strata::models
