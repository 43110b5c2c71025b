#pragma once
#include <cstddef>

namespace strata::device::cpu {

inline constexpr std::size_t kAttentionTile = 64;  // keys and queries of a tile; orders the sums

// The most tiles that a task takes through the other side's tiles, which are packed once for all of them. What the task
// keeps of its tiles must stay in a core's own cache. Forward takes tiles of queries, of one head or of several that
// share a key head; backward takes tiles of keys. Bits do not depend on their number.
inline constexpr std::size_t kMostForwardTiles = 8, kMostBackwardTiles = 4;
constexpr std::size_t forward_tiles(std::size_t padded_head_dim) {
  const std::size_t fit = 512 / padded_head_dim;
  return fit < 2 ? 2 : fit < kMostForwardTiles ? fit : kMostForwardTiles;
}
constexpr std::size_t backward_tiles(std::size_t padded_head_dim) {
  const std::size_t fit = 256 / padded_head_dim;
  return fit < 1 ? 1 : fit < kMostBackwardTiles ? fit : kMostBackwardTiles;
}

}  // namespace strata::device::cpu
