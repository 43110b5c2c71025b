#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/lane.h"
#include "device/ops/attention/attention.h"
#include "device/ops/attention/cached_attention.h"
#include "models/model.h"

namespace strata::models {

struct AttentionSpec {
  std::size_t heads, kv_heads, head_dim;
  std::size_t window = 0;  // as device::AttentionShape has it
  bool causal = true;
  float dropout = 0;  // of the probabilities

  std::size_t query_width() const { return heads * head_dim; }
  std::size_t key_width() const { return kv_heads * head_dim; }
  std::size_t row_width() const { return query_width() + 2 * key_width(); }
};

// Attention as every block has it: each row holds its queries, keys and values side by side, row_width() elements, and
// sees the rows of its document, or, in a run that generates, those of the calls before through a cache of keys and
// values. A piece of a block, prepared once and shared by all of them.
class AttentionPart {
 public:
  AttentionPart(const AttentionSpec& spec, const RunShape& run);

  const device::AttentionShape& shape() const { return shape_; }
  // Bytes: of a sequence's cache (0: the run does not generate); of scratch that any of the calls needs in a lane of
  // `threads` threads.
  std::size_t cache_bytes() const;
  std::size_t scratch_bytes(int threads) const;
  // Unit::set_up.
  std::string set_up(device::Lane&) const;

  // mixed: [rows, query_width()]. lse, of what was not cached, is for backward(): fp32 [batch, heads, seq].
  void forward(device::Lane&, const Context&, device::ConstView rows, device::View mixed, device::View lse,
               const device::Dropout&, device::View scratch) const;
  // d_rows: the gradients of queries, keys and values, laid out as these are.
  void backward(device::Lane&, const Context&, device::ConstView rows, device::ConstView mixed, device::ConstView lse,
                device::ConstView d_mixed, device::View d_rows, const device::Dropout&, device::View scratch) const;

  // From the first of them in the rows on.
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
  AttentionSpec spec_;
  device::DType dtype_;
  device::Device device_;
  device::AttentionShape shape_;
  device::CachedAttentionShape cached_{};  // if the run generates
};

}  // namespace strata::models
