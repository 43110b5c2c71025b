#pragma once
#include <cstddef>

namespace strata::device::cpu {

inline constexpr std::size_t kAttentionTile = 64;    // keys and queries of a tile; orders the sums
inline constexpr std::size_t kForwardQueries = 128;  // queries of a forward task: two tiles that share packed keys

}  // namespace strata::device::cpu
