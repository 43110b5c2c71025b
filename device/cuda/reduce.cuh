#pragma once
#include <cuda_runtime.h>

// Reductions in one order, fixed by the number of threads alone. Every thread of the group gets the result.
namespace strata::device::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

// Over the `lanes` lanes of the caller's group of a warp, a power of two; the whole warp calls it.
template <typename T, typename Combine>
__device__ inline T reduce_lanes(T x, int lanes, Combine combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}
template <typename T>
__device__ inline T sum_lanes(T x, int lanes = kWarp) {
  return reduce_lanes(x, lanes, [](T a, T b) { return a + b; });
}
// Of numbers; NaN counts only where all are.
__device__ inline float max_lanes(float x, int lanes = kWarp) {
  return reduce_lanes(x, lanes, [](float a, float b) { return fmaxf(a, b); });
}

// Sums kValues values, each over the `threads` threads of the caller's team: a block is cut into teams of this power of
// two. A team larger than a warp uses `shared`, kValues floats for each warp of the block, and a barrier of the block:
// all its threads call this, and a thread may write `shared` again behind the next barrier.
template <int kValues>
__device__ inline void sum_team(float (&values)[kValues], int threads, float* shared) {
  const int thread = static_cast<int>(threadIdx.x), lanes = threads < kWarp ? threads : kWarp;
  for (int k = 0; k < kValues; ++k) values[k] = sum_lanes(values[k], lanes);
  if (threads <= kWarp) return;
  if (thread % kWarp == 0)
    for (int k = 0; k < kValues; ++k) shared[thread / kWarp * kValues + k] = values[k];
  __syncthreads();
  const float* first = shared + thread / threads * (threads / kWarp) * kValues;
  for (int k = 0; k < kValues; ++k) values[k] = 0;
  for (int warp = 0; warp < threads / kWarp; ++warp)
    for (int k = 0; k < kValues; ++k) values[k] += first[warp * kValues + k];
}

}  // namespace strata::device::cuda
