#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/numeric/dtype.h"

namespace strata::device::cuda {

// Kernels compute in fp32 and are compiled without contraction (-fmad=false). A fused multiply-add is written as one,
// so the roundings are those of the source.

// Consecutive elements that one instruction reads or writes: 2 to 16 bytes, and aligned to their size.
template <typename T, int kN = 16 / sizeof(T)>
struct alignas(kN * sizeof(T)) Pack {
  static constexpr int kSize = kN;
  T at[kN];
  using Small = std::conditional_t<sizeof(at) == 4, std::uint32_t, std::uint16_t>;
  using Bits = std::conditional_t<sizeof(at) == 16, uint4, std::conditional_t<sizeof(at) == 8, uint2, Small>>;
  static_assert(sizeof(Bits) == kN * sizeof(T));
};

// The first kN of from[0 .. n), with zeros if there are fewer. kWhole: from[0] is aligned, and n is 0 or at least kN;
// otherwise the elements are read one by one.
template <bool kWhole, int kN, typename T>
__device__ inline Pack<T, kN> load_pack(const T* from, std::size_t n) {
  using P = Pack<T, kN>;
  if constexpr (kWhole) {
    if (n == 0) return P{};
    return std::bit_cast<P>(*reinterpret_cast<const typename P::Bits*>(from));
  } else {
    P v{};
    for (int i = 0; i < kN; ++i)
      if (static_cast<std::size_t>(i) < n) v.at[i] = from[i];
    return v;
  }
}
// Writes v to the first kN of to[0 .. n), in device memory, in the same way as load_pack() reads.
template <bool kWhole, int kN, typename T>
__device__ inline void store_pack(T* to, std::size_t n, const Pack<T, kN>& v) {
  if constexpr (kWhole) {
    if (n == 0) return;
    using Bits = typename Pack<T, kN>::Bits;
    // The compiler splits a plain store into its elements if these come from different branches.
    __stwb(reinterpret_cast<Bits*>(to), std::bit_cast<Bits>(v));
  } else {
    for (int i = 0; i < kN; ++i)
      if (static_cast<std::size_t>(i) < n) to[i] = v.at[i];
  }
}

// 16 bytes that are all present.
template <typename T>
__device__ inline Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
// The 16 bytes at row[at]. Elements beyond row[0 .. n) become zeros. aligned: rows start at multiples of 16 bytes.
template <typename T>
__device__ inline Pack<T> load_some(const T* row, std::size_t at, std::size_t n, bool aligned) {
  if (aligned && at + Pack<T>::kSize <= n) return load_pack(row + at);
  Pack<T> pack;
  for (int i = 0; i < Pack<T>::kSize; ++i) pack.at[i] = at + i < n ? row[at + i] : T{};
  return pack;
}

// kN numbers in registers.
template <int kN>
struct Floats {
  float at[kN];
};
// The words of an even number of 16-bit elements. Splitting them into halves would take instructions to put them
// together again.
template <int kN>
struct Words {
  std::uint32_t at[kN / 2];
};
template <typename T, int kN>
__device__ inline Floats<kN> widened(const Pack<T, kN>& v) {
  Floats<kN> x;
  if constexpr (dtype_of<T> == DType::bf16 && kN % 2 == 0) {
    const auto words = std::bit_cast<Words<kN>>(v);
    for (int i = 0; i < kN; i += 2) {
      x.at[i] = std::bit_cast<float>(words.at[i / 2] << 16);
      x.at[i + 1] = std::bit_cast<float>(words.at[i / 2] & 0xffff0000u);
    }
  } else {
    for (int i = 0; i < kN; ++i) x.at[i] = to_float(v.at[i]);
  }
  return x;
}
template <typename T, int kN>
__device__ inline Pack<T, kN> rounded(const Floats<kN>& x) {
  Pack<T, kN> v;
  for (int i = 0; i < kN; ++i) v.at[i] = from_float<T>(x.at[i]);
  return v;
}

// True if every address at a multiple of `bytes` from `at` is aligned to `alignment` bytes.
inline bool aligned(const void* at, std::size_t bytes, std::size_t alignment = 16) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment == 0 && bytes % alignment == 0;
}

}  // namespace strata::device::cuda
