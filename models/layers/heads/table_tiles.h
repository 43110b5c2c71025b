#pragma once
#include <algorithm>
#include <cstddef>

#include "device/device.h"

namespace strata::models {

// How a table of the vocabulary is cut by rows. Sums over the vocabulary are ordered by these tiles, gathered one by
// one or not, so their boundaries depend on the table's shape and the kind of device alone.
class TableTiles {
 public:
  // A whole number of the pieces in which a softmax is summed; large enough for full-speed products, which on a GPU
  // have a hundred multiprocessors to fill.
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
