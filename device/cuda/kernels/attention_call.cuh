#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/row_range.h"
#include "device/step_scalars.h"

namespace strata::device {
class Lane;
}

namespace strata::device::cuda {

inline constexpr std::size_t kMaxHeadDim = 256;
inline constexpr int kTileRows = 64, kTileThreads = 128;  // rows and threads of a block's tile of queries or keys

// One call of attention; see device/ops/attention/attention.h. Unused pointers are null.
template <typename T>
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  unsigned behind, ahead;  // rows before and after its own that a query sees in its document; at most seq
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  bool aligned;               // the heads of all operands start at multiples of 16 bytes
  const RowRange* documents;  // [batch, seq]
  const T *q, *k, *v, *o_read, *d_o;
  T *o, *dq;
  void *dk, *dv;  // values of type T, or fp32
  bool fp32_key_gradients;
  float *lse, *delta;          // [batch, heads, seq]
  const StepScalars* scalars;  // the scalars that dropout reads
  std::uint64_t micro_batch;
  std::uint32_t site, threshold;        // threshold 0: no dropout
  float keep_scale;                     // 1 / (1 - p)
  std::size_t layer_heads, first_head;  // dropout numbers heads within the whole layer

  __device__ std::size_t width() const { return heads * head_dim; }
};

// A document of one call; rows are counted from its first one. Members are few and narrow, because they stay in
// registers throughout.
template <typename T>
struct AttentionRows {
  const AttentionCall<T>& call;
  unsigned batch, first, rows;  // the tile's sequence, and its rows there

  // The number of the document's rows in [from, from + most).
  __device__ int rows_from(unsigned from, int most) const {
    return from + most <= rows ? most : from < rows ? static_cast<int>(rows - from) : 0;
  }
  __device__ bool visible(unsigned query, unsigned key) const {
    return key <= query + call.ahead && query <= key + call.behind && query < rows && key < rows;
  }
  // True if each of `queries` queries sees each of `keys` keys.
  __device__ bool all_visible(unsigned query, unsigned queries, unsigned key, unsigned keys) const {
    return key + keys <= query + call.ahead + 1 && query + queries <= key + call.behind + 1 &&
           query + queries <= rows && key + keys <= rows;
  }
  // The rows at most `before` rows before or `after` rows after one of the kTileRows rows that start at `row`:
  // [reach_begin, reach_end).
  __device__ unsigned reach_begin(unsigned row, unsigned before) const { return row <= before ? 0 : row - before; }
  __device__ unsigned reach_end(unsigned row, unsigned after) const {
    return row + kTileRows + after < rows ? row + kTileRows + after : rows;
  }
  __device__ std::size_t first_row() const { return batch * call.seq + first; }
  // The place of the document's first row in [batch, heads, seq].
  __device__ std::size_t statistics(unsigned head) const { return (batch * call.heads + head) * call.seq + first; }
};

// Queue our own kernels in the lane. Their instances are spread over ops/attention_*.cu, one file per element type,
// because together they take longer to compile than all other kernels.
template <typename T>
void launch_attention_forward(Lane& lane, const AttentionCall<T>& call);
template <typename T>
void launch_attention_backward(Lane& lane, const AttentionCall<T>& call);

}  // namespace strata::device::cuda
