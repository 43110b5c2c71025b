#pragma once
#include <cstddef>

namespace strata::device::cpu {

inline constexpr std::size_t kAttentionTile = 64;  // keys and queries of a tile; orders the sums

// The maximum number of tiles that one task processes against the tiles of the other operand, which are packed once for
// all of them. The data that a task keeps per tile must fit into a core's own cache. In forward these are tiles of
// queries, of one head or of several that share a key head; in backward, tiles of keys. Bits do not depend on their
// number.
inline constexpr std::size_t kMaxForwardTiles = 8, kMaxBackwardTiles = 4;
constexpr std::size_t forward_tiles(std::size_t padded_head_dim) {
  const std::size_t fit = 512 / padded_head_dim;
  return fit < 2 ? 2 : fit < kMaxForwardTiles ? fit : kMaxForwardTiles;
}
constexpr std::size_t backward_tiles(std::size_t padded_head_dim) {
  const std::size_t fit = 256 / padded_head_dim;
  return fit < 1 ? 1 : fit < kMaxBackwardTiles ? fit : kMaxBackwardTiles;
}

}  // namespace strata::device::cpu
