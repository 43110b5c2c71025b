#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "device/cuda/vectors.cuh"

// Conversions by the GPU's own instructions, for kernels that compute more than they move: as those of device/dtype.h,
// but that NaN becomes the GPU's own.
namespace strata::device::cuda {

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(bf16 x) {
  return to_float(x);
}
__device__ inline float widen(fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <typename T>
struct Pair {
  T low, high;
};
template <typename T>
__device__ inline Pair<T> narrow_pair(float low, float high) {
  std::uint32_t both;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return {{static_cast<std::uint16_t>(both)}, {static_cast<std::uint16_t>(both >> 16)}};
}
template <>
__device__ inline Pair<float> narrow_pair(float low, float high) {
  return {low, high};
}

template <typename T, int kN>
__device__ inline Floats<kN> widen(const Vector<T, kN>& v) {
  Floats<kN> x;
  for (int i = 0; i < kN; ++i) x.at[i] = widen(v.at[i]);
  return x;
}
template <typename T, int kN>
__device__ inline Vector<T, kN> narrow(const Floats<kN>& x) {
  Vector<T, kN> v;
  for (int i = 0; i < kN; i += 2) {
    const Pair<T> pair = narrow_pair<T>(x.at[i], i + 1 < kN ? x.at[i + 1] : 0.0f);
    v.at[i] = pair.low;
    if (i + 1 < kN) v.at[i + 1] = pair.high;
  }
  return v;
}

}  // namespace strata::device::cuda
