#pragma once
#include <algorithm>
#include <cstddef>

namespace strata::device {

// How a sum over rows is cut: into blocks of consecutive rows. Each block is summed in order, then the blocks are. This
// depends only on the number of rows, and is part of the numerics.
struct RowBlocks {
  std::size_t rows, per_block, count;

  explicit constexpr RowBlocks(std::size_t n)
      : rows(n), per_block(std::max<std::size_t>((n + 31) / 32, 16)), count((n + per_block - 1) / per_block) {}
  constexpr std::size_t begin(std::size_t block) const { return block * per_block; }
  constexpr std::size_t size(std::size_t block) const { return std::min(per_block, rows - begin(block)); }
};

}  // namespace strata::device
