#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/step_scalars.h"

namespace strata::device {
class Lane;
}

namespace strata::device::cuda {

inline constexpr std::size_t kMostHeadDim = 256;

// One call of attention; see device/ops/attention.h. Unused pointers are null.
template <typename T>
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim, window;  // window: 0 or below seq
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  bool aligned;  // heads of all operands lie at multiples of 16 bytes
  const T *q, *k, *v, *o_read, *d_o;
  T *o, *dq, *dk, *dv;
  float *lse, *delta;          // [batch, heads, seq]
  const StepScalars* scalars;  // of dropout
  std::uint64_t micro_batch;
  std::uint32_t site, threshold;  // threshold 0: no dropout
  float keep_scale;               // 1 / (1 - p)

  __device__ std::size_t width() const { return heads * head_dim; }
  // Rows of a sequence from `first` on, at most `most`.
  __device__ int rows_from(std::size_t first, int most) const {
    return first + most <= seq ? most : first < seq ? static_cast<int>(seq - first) : 0;
  }
  __device__ bool visible(std::size_t query, std::size_t key) const {
    return key <= query && query < seq && (window == 0 || query < key + window);
  }
  // Whether every one of `queries` queries sees every one of `keys` keys.
  __device__ bool all_visible(std::size_t query, std::size_t queries, std::size_t key, std::size_t keys) const {
    return key + keys <= query + 1 && query + queries <= seq && (window == 0 || query + queries <= key + window);
  }
};

// The own kernels, queued in the lane. Instances are spread over ops/attention_*.cu, a file per element type: together
// they take longer to compile than all other kernels.
template <typename T>
void launch_attention_forward(Lane& lane, const AttentionCall<T>& call);
template <typename T>
void launch_attention_backward(Lane& lane, const AttentionCall<T>& call);

}  // namespace strata::device::cuda
