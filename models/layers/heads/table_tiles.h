#pragma once
#include <algorithm>
#include <cstddef>

#include "device/device.h"

namespace strata::models {

// How a vocabulary table is cut into tiles of rows. Sums over the vocabulary are ordered by these tiles, whether or not
// they are gathered one by one, so their borders depend only on the table's shape and the kind of device.
class TableTiles {
 public:
  // A multiple of the pieces in which a softmax is summed. Large enough for full-speed products, which must fill a
  // hundred multiprocessors on a GPU.
  static constexpr std::size_t rows_on(device::Kind kind) { return kind == device::Kind::cpu ? 4096 : 32768; }

  TableTiles(std::size_t vocabulary, device::Kind kind) : vocabulary_(vocabulary), rows_(rows_on(kind)) {}

  std::size_t vocabulary() const { return vocabulary_; }
  std::size_t count() const { return (vocabulary_ + rows_ - 1) / rows_; }
  std::size_t first(std::size_t tile) const { return tile * rows_; }
  std::size_t rows(std::size_t tile) const { return std::min(rows_, vocabulary_ - first(tile)); }

 private:
  std::size_t vocabulary_, rows_;
};

}  // namespace strata::models
