#pragma once
#include <algorithm>
#include <cstddef>

namespace strata::models {

// How a table of the vocabulary is cut by rows. Sums over the vocabulary are ordered by these tiles, gathered one by
// one or not, so their borders depend on the table's shape alone.
struct TableTiles {
  // A whole number of the pieces in which a softmax is summed; large enough for full-speed products.
  static constexpr std::size_t kRows = 4096;

  std::size_t vocabulary;

  std::size_t count() const { return (vocabulary + kRows - 1) / kRows; }
  std::size_t first(std::size_t tile) const { return tile * kRows; }
  std::size_t rows(std::size_t tile) const { return std::min(kRows, vocabulary - first(tile)); }
};

}  // namespace strata::models
