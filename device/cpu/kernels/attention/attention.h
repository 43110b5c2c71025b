#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/attention/tiles.h"
#include "device/cpu/kernels/lanes/select.h"
#include "device/numeric/philox.h"
#include "device/row_range.h"

namespace strata::device::cpu {

// One call of attention; see device/ops/attention/attention.h. Unused pointers are null.
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t behind, ahead;  // rows before and behind its own that a query sees in its document
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  const void *q, *k, *v, *d_o;
  const void* o_read;
  void *o, *dq, *dk, *dv;
  const RowRange* documents;  // [batch * seq]
  float* lse;                 // [batch, heads, seq]
  float* delta;               // [batch, heads, seq]: sum over the head of o * d_o
  float* dq_sum;              // [batch, heads, seq, head_dim rounded up to 16]
  std::uint32_t* turns;       // [batch, heads, seq]: contributions to dq_sum so far of the query tile that starts there
  RandomStream random;        // of dropout
  std::uint32_t threshold;    // 0: no dropout
  float keep_scale;           // 1 / (1 - p)

  [[gnu::always_inline]] std::size_t padded() const { return (head_dim + 15) / 16 * 16; }
};

// A document: `rows` rows of sequence `batch` from its row `first` on.
struct AttentionRows {
  std::size_t batch, first, rows;
};

// By dtype, in the order of DType. Tasks of one call may run at the same time; `scratch` is one worker's,
// attention_scratch() floats, 64-byte aligned.
struct AttentionKernels {
  // The kForwardQueries queries of one head from row `begin` of the document on, or those that are left.
  void (*forward[3])(const AttentionCall&, const AttentionRows& document, std::size_t head, std::size_t begin,
                     float* scratch);
  // delta of rows [begin, end) of the batch * seq rows; sets their turns to zero.
  void (*delta[3])(const AttentionCall&, std::size_t begin, std::size_t end);
  // dk and dv of the tile of keys at row `first` of the document, and its part of dq, added when its turn has come:
  // tiles of a document must start in order.
  void (*backward[3])(const AttentionCall&, const AttentionRows& document, std::size_t kv_head, std::size_t first,
                      float* scratch);
};
STRATA_BF16_KERNEL_TABLE(AttentionKernels, attention_kernels)

// Floats of scratch: forward's transposed queries, output and keys; backward's eight operands; scores and random words.
inline constexpr std::size_t attention_scratch(std::size_t padded_head_dim) {
  return 8 * kAttentionTile * padded_head_dim + 2 * kAttentionTile * kAttentionTile + 4096;
}

}  // namespace strata::device::cpu
