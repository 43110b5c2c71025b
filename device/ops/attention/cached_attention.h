#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// Causal grouped-query attention of one sequence over a cache of the keys and values of its earlier positions. Heads,
// strides, scale and window are those of AttentionShape. The cache has room for `capacity` positions.
struct CachedAttentionShape {
  std::size_t heads, kv_heads, head_dim;
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  std::size_t window, capacity;

  // Positions come in blocks of 16 on every device.
  std::size_t rounded_capacity() const { return (capacity + 15) / 16 * 16; }
};

// Elements of a cache, in the dtype of q, k and v. Positions are written in ascending order, from 0.
std::size_t cache_elements(const CachedAttentionShape&);

// Puts k and v of `rows` rows into the cache at positions [first, first + rows). Then each row attends to all positions
// up to its own. o rows are heads * head_dim apart. It computes in fp32, with one order of sums for any number of
// threads.
void cached_attention(Lane&, const CachedAttentionShape&, std::size_t first, std::size_t rows, ConstView q, ConstView k,
                      ConstView v, View cache, View o, View workspace);

// Bytes of workspace in a lane of `threads` threads.
std::size_t cached_attention_workspace(const CachedAttentionShape&, int threads);

}  // namespace strata::device
