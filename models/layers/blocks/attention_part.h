#pragma once
#include <cstddef>
#include <string>

#include "device/lane.h"
#include "device/ops/attention/attention.h"
#include "models/model.h"

namespace strata::models {

struct AttentionSpec {
  std::size_t heads, kv_heads, head_dim;
  std::size_t window = 0;  // see device::AttentionShape
  bool causal = true;
  float dropout = 0;  // dropout of the probabilities
  // The shards of the layer's heads, with one call per shard; heads and kv_heads are per shard.
  ShardRange shards = {};
  bool shared_keys = false;  // keys and values are not in these rows: see SharedKeys

  std::size_t query_width() const { return heads * head_dim; }
  std::size_t key_width() const { return kv_heads * head_dim; }
  std::size_t row_width() const { return query_width() + 2 * key_width(); }
};

// The attention of every block. Each row holds its queries, keys and values side by side, row_width() elements, and
// sees the rows of its document. In a run that generates, it also sees the rows of earlier calls, through a cache of
// keys and values. It is a component of a block, prepared once and shared by all blocks.
class AttentionPart {
 public:
  AttentionPart(const AttentionSpec& spec, const RunShape& run);

  const device::AttentionShape& shape() const { return shape_; }
  // In bytes: the cache of all this rank's shards for one sequence (0: the run does not generate), and the maximum
  // scratch of a call in a lane of `threads` threads.
  std::size_t cache_bytes() const;
  std::size_t scratch_bytes(int threads) const;
  // See Unit::set_up.
  std::string set_up(device::Lane&) const;

  // `shard` is an index among this rank's shards. mixed: [rows, query_width()]. lse is for backward() and only written
  // without the cache: fp32 [batch, heads, seq]. shared: [rows, 2 key_width()], each row's keys, then its values, if
  // the spec has shared keys; otherwise empty.
  void forward(device::Lane&, const Context&, device::ConstView rows, device::View mixed, device::View lse,
               const device::Dropout&, device::View scratch, std::size_t shard = 0,
               device::ConstView shared = {}) const;
  // d_rows: the gradients of queries, keys and values, in the same layout. Shared keys and values have theirs in
  // d_shared, in fp32 and laid out like `shared`.
  void backward(device::Lane&, const Context&, device::ConstView rows, device::ConstView mixed, device::ConstView lse,
                device::ConstView d_mixed, device::View d_rows, const device::Dropout&, device::View scratch,
                std::size_t shard = 0, device::ConstView shared = {}, device::View d_shared = {}) const;

  // The rows, starting at their first query, key or value.
  template <typename AnyView>
  AnyView queries(AnyView rows) const {
    return rows;
  }
  template <typename AnyView>
  AnyView keys(AnyView rows) const {
    return rows.sub(spec_.query_width(), rows.size - spec_.query_width());
  }
  template <typename AnyView>
  AnyView values(AnyView rows) const {
    const std::size_t first = spec_.query_width() + spec_.key_width();
    return rows.sub(first, rows.size - first);
  }

 private:
  device::AttentionShape shape_of(std::size_t shard) const;
  template <typename AnyView>
  AnyView keys_of(AnyView rows, AnyView shared) const {
    return spec_.shared_keys ? shared : keys(rows);
  }
  template <typename AnyView>
  AnyView values_of(AnyView rows, AnyView shared) const {
    const std::size_t width = spec_.key_width();
    return spec_.shared_keys ? shared.sub(width, shared.size - width) : values(rows);
  }

  AttentionSpec spec_;
  device::DType dtype_;
  device::Device device_;
  device::AttentionShape shape_;
  device::CachedAttentionShape cached_{};  // only in a run that generates
};

}  // namespace strata::models
