#include "models/layers/heads/table_tiles.h"

#include <algorithm>
#include <functional>

namespace strata::models {

TableTiles::TableTiles(std::size_t vocabulary, device::Kind kind, const ShardRange& shards)
    : vocabulary_(vocabulary),
      rows_(rows_on(kind)),
      shards_(shards.count),
      shard_words_((vocabulary + shards.of - 1) / shards.of) {
  for (std::size_t shard = 0; shard < shards.of; ++shard) {
    const std::size_t begin = std::min(vocabulary, shard * shard_words_);
    const std::size_t end = std::min(vocabulary, begin + shard_words_);
    for (std::size_t first = begin; first < end; first += rows_) {
      const Tile tile{first, std::min(rows_, end - first), shard - shards.first, first - begin, 0};
      widths_.push_back(tile.rows);
      if (shard >= shards.first && shard < shards.first + shards.count) tiles_.push_back(tile);
    }
  }
  std::ranges::sort(widths_, std::greater<>());
  widths_.erase(std::unique(widths_.begin(), widths_.end()), widths_.end());
  for (Tile& tile : tiles_)
    tile.width = static_cast<std::size_t>(std::ranges::find(widths_, tile.rows) - widths_.begin());
}

}  // namespace strata::models
