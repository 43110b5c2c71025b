#pragma once
#include <cstddef>
#include <cstdint>

#include "device/numeric/philox.h"
#include "device/row_range.h"

namespace strata::device::cpu {

// One call of attention; see device/ops/attention/attention.h. Unused pointers are null.
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t behind, ahead;  // rows before and after its own that a query sees in its document
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  const void *q, *k, *v, *d_o;
  const void* o_read;
  void *o, *dq, *dk, *dv;
  bool fp32_key_gradients;
  const RowRange* documents;  // [batch * seq]
  float* lse;                 // [batch, heads, seq]
  float* delta;               // [batch, heads, seq]: sum over the head of o * d_o
  float* dq_sum;              // [batch, heads, seq, head_dim rounded up to 16]
  std::uint32_t* turns;       // [batch, heads, seq]: contributions so far to dq_sum of the query tile that starts there
  RandomStream random;        // for dropout, which counts heads in the whole layer
  std::uint32_t layer_heads, first_head;
  std::uint32_t threshold;  // 0: no dropout
  float keep_scale;         // 1 / (1 - p)

  [[gnu::always_inline]] std::size_t padded() const { return (head_dim + 15) / 16 * 16; }
};

// A document: `rows` rows of sequence `batch` from its row `first` on.
struct AttentionRows {
  std::size_t batch, first, rows;
};

// The tiles that a forward task computes: queries [begin, begin + rows) of `heads` heads from `head` on, which share a
// key head. heads * (tiles in rows) is at most forward_tiles().
struct QueryTiles {
  std::size_t head, heads, begin, rows;
};

}  // namespace strata::device::cpu
