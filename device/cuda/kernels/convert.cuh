#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "device/cuda/kernels/pack.cuh"

// Conversions with the GPU's own instructions, for kernels that compute more than they move. They agree with
// device/numeric/dtype.h, except that NaN becomes the GPU's own.
namespace strata::device::cuda {

// Two 16-bit numbers, the first in a word's low half.
template <typename T>
__device__ inline float2 widen_word(std::uint32_t word) {
  static_assert(dtype_of<T> == DType::fp16);
  float2 x;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n"
      "}"
      : "=f"(x.x), "=f"(x.y)
      : "r"(word));
  return x;
}
template <typename T>
__device__ inline std::uint32_t narrow_word(float low, float high) {
  std::uint32_t both;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <typename T, int kN>
__device__ inline Floats<kN> widen(const Pack<T, kN>& v) {
  if constexpr (dtype_of<T> != DType::fp16) {
    return widened(v);
  } else if constexpr (kN == 1) {
    return {widen_word<T>(v.at[0].bits).x};
  } else {
    const auto words = std::bit_cast<Words<kN>>(v);
    Floats<kN> x;
    for (int i = 0; i < kN; i += 2) {
      const float2 two = widen_word<T>(words.at[i / 2]);
      x.at[i] = two.x;
      x.at[i + 1] = two.y;
    }
    return x;
  }
}
template <typename T, int kN>
__device__ inline Pack<T, kN> narrow(const Floats<kN>& x) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<Pack<T, kN>>(x);
  } else if constexpr (kN == 1) {
    return {{{static_cast<std::uint16_t>(narrow_word<T>(x.at[0], 0.0f))}}};
  } else {
    Words<kN> words;
    for (int i = 0; i < kN; i += 2) words.at[i / 2] = narrow_word<T>(x.at[i], x.at[i + 1]);
    return std::bit_cast<Pack<T, kN>>(words);
  }
}

}  // namespace strata::device::cuda
