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

inline constexpr std::size_t kMostHeadDim = 256;
inline constexpr int kTileRows = 64, kTileThreads = 128;  // of a block's tile of queries, or of keys

// One call of attention; see device/ops/attention.h. Unused pointers are null.
template <typename T>
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t behind, ahead;  // rows before and behind its own that a query sees in its document
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  bool aligned;               // heads of all operands lie at multiples of 16 bytes
  const RowRange* documents;  // [batch, seq]
  const T *q, *k, *v, *o_read, *d_o;
  T *o, *dq, *dk, *dv;
  float *lse, *delta;          // [batch, heads, seq]
  const StepScalars* scalars;  // of dropout
  std::uint64_t micro_batch;
  std::uint32_t site, threshold;  // threshold 0: no dropout
  float keep_scale;               // 1 / (1 - p)

  __device__ std::size_t width() const { return heads * head_dim; }
};

// A document; its rows count from its first.
struct AttentionRows {
  std::size_t batch, first, rows;  // which sequence, and from which of its rows on
  std::size_t behind, ahead;       // as those of the call

  template <typename T>
  __device__ AttentionRows(const AttentionCall<T>& c, std::size_t sequence, const RowRange& document)
      : batch(sequence), first(document.first), rows(document.end - document.first), behind(c.behind), ahead(c.ahead) {}

  // Rows from `from` on, at most `most`.
  __device__ int rows_from(std::size_t from, int most) const {
    return from + most <= rows ? most : from < rows ? static_cast<int>(rows - from) : 0;
  }
  __device__ bool visible(std::size_t query, std::size_t key) const {
    return key <= query + ahead && query <= key + behind && query < rows && key < rows;
  }
  // Whether every one of `queries` queries sees every one of `keys` keys.
  __device__ bool all_visible(std::size_t query, std::size_t queries, std::size_t key, std::size_t keys) const {
    return key + keys <= query + ahead + 1 && query + queries <= key + behind + 1 && query + queries <= rows &&
           key + keys <= rows;
  }
  // Rows up to `before` before and `after` behind one of the kTileRows rows from `row` on: [reach_begin, reach_end).
  __device__ static std::size_t reach_begin(std::size_t row, std::size_t before) {
    return row <= before ? 0 : row - before;
  }
  __device__ std::size_t reach_end(std::size_t row, std::size_t after) const {
    return row + kTileRows + after < rows ? row + kTileRows + after : rows;
  }
};

// The own kernels, queued in the lane. Instances are spread over ops/attention_*.cu, a file per element type: together
// they take longer to compile than all other kernels.
template <typename T>
void launch_attention_forward(Lane& lane, const AttentionCall<T>& call);
template <typename T>
void launch_attention_backward(Lane& lane, const AttentionCall<T>& call);

}  // namespace strata::device::cuda
