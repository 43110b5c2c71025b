#pragma once
#include <cuda_runtime.h>

// Reductions in an order that depends only on the number of threads. Every thread of the group gets the result.
namespace strata::device::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

// Over the `lanes` lanes of the caller's group in a warp, a power of two; the whole warp calls it.
template <typename T, typename Combine>
__device__ inline T reduce_lanes(T x, int lanes, Combine combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}
template <typename T>
__device__ inline T sum_lanes(T x, int lanes = kWarp) {
  return reduce_lanes(x, lanes, [](T a, T b) { return a + b; });
}
// The maximum of numbers; NaN counts only if all are NaN.
__device__ inline float max_lanes(float x, int lanes = kWarp) {
  return reduce_lanes(x, lanes, [](float a, float b) { return fmaxf(a, b); });
}

// Sums kValues values, each over the 2^bits <= 512 threads of the caller's team; a block is cut into such teams. A team
// larger than a warp uses `shared`, kValues floats for each warp of the block, and a barrier of the block: all its
// threads call this, and may write `shared` again only after the next barrier.
template <int kValues>
__device__ inline void sum_team(float (&values)[kValues], int bits, float* shared) {
  constexpr int kWarpBits = 5, kWarpsBits = 4;
  // Lanes beyond the group are read too, but not added: that costs less than a loop of unknown length.
  const auto add = [&](int most, int used) {
#pragma unroll
    for (int bit = 0; bit < most; ++bit)
      for (int k = 0; k < kValues; ++k) {
        const float other = __shfl_xor_sync(kAllLanes, values[k], 1 << bit);
        if (bit < used) values[k] += other;
      }
  };
  add(kWarpBits, bits);
  if (bits <= kWarpBits) return;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane == 0)
    for (int k = 0; k < kValues; ++k) shared[warp * kValues + k] = values[k];
  __syncthreads();
  // Lane l takes the sum of the team's warp l, cyclically.
  const unsigned others = (1u << (bits - kWarpBits)) - 1, from = (warp & ~others) | (lane & others);
  for (int k = 0; k < kValues; ++k) values[k] = shared[from * kValues + k];
  add(kWarpsBits, bits - kWarpBits);
}

}  // namespace strata::device::cuda
