#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "device/device.h"
#include "models/parameter.h"

namespace strata::models {

// How a vocabulary table is cut into tiles of rows. Sums over the vocabulary are ordered by these tiles, whether or not
// they are gathered one by one, so their boundaries depend only on the table's shape, the kind of device and the number
// of virtual shards. Each shard has the next `shard_words` words (fewer at the end of the vocabulary), in tiles of its
// own. Tile indices run over the shards of this rank.
class TableTiles {
 public:
  // A multiple of the pieces in which a softmax is summed. Large enough for full-speed products, which must fill a
  // hundred multiprocessors on a GPU.
  static constexpr std::size_t rows_on(device::Kind kind) { return kind == device::Kind::cpu ? 4096 : 32768; }

  TableTiles(std::size_t vocabulary, device::Kind kind, const ShardRange& shards = {});

  std::size_t vocabulary() const { return vocabulary_; }
  std::size_t shard_words() const { return shard_words_; }
  std::size_t count() const { return tiles_.size(); }
  std::size_t first(std::size_t tile) const { return tiles_[tile].first; }
  std::size_t rows(std::size_t tile) const { return tiles_[tile].rows; }
  // The shard that has the tile, counted among this rank's, and the tile's first row in it.
  std::size_t shard(std::size_t tile) const { return tiles_[tile].shard; }
  std::size_t row_in_shard(std::size_t tile) const { return tiles_[tile].row; }
  // The index of the tile's width in widths(), the different numbers of rows of all ranks' tiles, the largest first.
  std::size_t width(std::size_t tile) const { return tiles_[tile].width; }
  const std::vector<std::size_t>& widths() const { return widths_; }
  // The sum of f(rows) over the tiles of as many full shards as this rank has, which is the same on every rank.
  template <typename F>
  std::size_t sum_over_full_shards(F&& f) const {
    std::size_t sum = 0;
    for (std::size_t row = 0; row < shard_words_; row += rows_) sum += f(std::min(rows_, shard_words_ - row));
    return shards_ * sum;
  }

 private:
  struct Tile {
    std::size_t first, rows, shard, row, width;
  };

  std::size_t vocabulary_, rows_, shards_, shard_words_;
  std::vector<Tile> tiles_;
  std::vector<std::size_t> widths_;
};

}  // namespace strata::models
