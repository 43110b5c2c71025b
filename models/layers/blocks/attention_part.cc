#include "models/layers/blocks/attention_part.h"

#include <algorithm>
#include <cmath>

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

AttentionPart::AttentionPart(const AttentionSpec& spec, const RunShape& run)
    : spec_(spec),
      dtype_(run.dtype),
      device_(run.device),
      shape_{.batch = run.batch,
             .seq = run.seq,
             .heads = spec.heads,
             .kv_heads = spec.kv_heads,
             .head_dim = spec.head_dim,
             .q_stride = spec.row_width(),
             .k_stride = spec.shared_keys ? 2 * spec.key_width() : spec.row_width(),
             .v_stride = spec.shared_keys ? 2 * spec.key_width() : spec.row_width(),
             .scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
             .window = spec.window,
             .causal = spec.causal,
             .packed = run.packed,
             .fp32_key_gradients = spec.shared_keys} {
  if (run.cache > 0)
    cached_ = {.heads = spec.heads,
               .kv_heads = spec.kv_heads,
               .head_dim = spec.head_dim,
               .q_stride = shape_.q_stride,
               .k_stride = shape_.k_stride,
               .v_stride = shape_.v_stride,
               .scale = shape_.scale,
               .window = spec.window,
               .capacity = run.cache};
}

std::size_t AttentionPart::cache_bytes() const {
  return cached_.capacity > 0 ? spec_.shards.count * device::cache_elements(cached_) * size_of(dtype_) : 0;
}

std::size_t AttentionPart::scratch_bytes(int threads) const {
  return std::max(device::attention_workspace(device_, shape_, dtype_, spec_.dropout > 0, threads),
                  cached_.capacity > 0 ? device::cached_attention_workspace(cached_, threads) : 0);
}

std::string AttentionPart::set_up(Lane& lane) const {
  if (cached_.capacity > 0) return {};
  return device::prepare_attention(lane, shape_, dtype_, {.probability = spec_.dropout});
}

// Only dropout depends on which heads these are, so implementations are prepared for `shape_`.
device::AttentionShape AttentionPart::shape_of(std::size_t shard) const {
  device::AttentionShape shape = shape_;
  if (spec_.dropout > 0) {
    shape.layer_heads = spec_.heads * spec_.shards.of;
    shape.first_head = spec_.heads * (spec_.shards.first + shard);
  }
  return shape;
}

void AttentionPart::forward(Lane& lane, const Context& c, ConstView rows, View mixed, View lse,
                            const device::Dropout& dropout, View scratch, std::size_t shard, ConstView shared) const {
  const ConstView k = keys_of(rows, shared), v = values_of(rows, shared);
  if (c.cache.rows == 0)
    return attention_forward(lane, shape_of(shard), c.batch.documents, queries(rows), k, v, mixed, lse, dropout,
                             scratch);
  const std::size_t of_shard = device::cache_elements(cached_);
  cached_attention(lane, cached_, c.cache.first, c.cache.rows, queries(rows), k, v,
                   c.cache.values.sub(shard * of_shard, of_shard), mixed, scratch);
}

void AttentionPart::backward(Lane& lane, const Context& c, ConstView rows, ConstView mixed, ConstView lse,
                             ConstView d_mixed, View d_rows, const device::Dropout& dropout, View scratch,
                             std::size_t shard, ConstView shared, View d_shared) const {
  attention_backward(lane, shape_of(shard), c.batch.documents, queries(rows), keys_of(rows, shared),
                     values_of(rows, shared), mixed, lse, d_mixed, queries(d_rows), keys_of(d_rows, d_shared),
                     values_of(d_rows, d_shared), dropout, scratch);
}

}  // namespace strata::models
