#include "device/ops/attention/cached_attention.h"

#include "device/operations.h"

namespace strata::device {

std::size_t cache_elements(const CachedAttentionShape& s) {
  return 2 * s.kv_heads * s.head_dim * s.rounded_capacity();
}

std::size_t cached_attention_workspace(const CachedAttentionShape& s, int threads) {
  return static_cast<std::size_t>(threads) * s.rounded_capacity() * sizeof(float);
}

void cached_attention(Lane& lane, const CachedAttentionShape& s, std::size_t first, std::size_t rows, ConstView q,
                      ConstView k, ConstView v, View cache, View o, View workspace) {
  STRATA_CHECK_LE(first + rows, s.capacity);
  STRATA_CHECK_LE(cache_elements(s), cache.size);
  STRATA_CHECK_LE(rows * s.heads * s.head_dim, o.size);
  STRATA_CHECK_LE(cached_attention_workspace(s, lane.threads()), workspace.bytes());
  STRATA_CHECK(q.dtype == cache.dtype && k.dtype == cache.dtype && v.dtype == cache.dtype && o.dtype == cache.dtype);
  if (rows == 0) return;
  STRATA_CHECK_LE((rows - 1) * s.q_stride + s.heads * s.head_dim, q.size);
  STRATA_CHECK_LE((rows - 1) * s.k_stride + s.kv_heads * s.head_dim, k.size);
  STRATA_CHECK_LE((rows - 1) * s.v_stride + s.kv_heads * s.head_dim, v.size);
  lane.operations().cached_attention(lane, s, first, rows, q, k, v, cache, o, workspace);
}

}  // namespace strata::device
