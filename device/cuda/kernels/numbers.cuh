#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "device/numeric/dtype.h"

// Arithmetic of CUDA kernels on stored numbers. Kernels compute in fp32 and are compiled without contraction
// (-fmad=false): a fused multiply-add is written as one, so that the roundings are those of the source.
namespace strata::device::cuda {

// 16 bytes of consecutive elements: what a thread reads or writes at a time.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

template <typename T>
__device__ inline Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
// The pack at row[at], of which row[0 .. n) is there; zeros if there is less. aligned: rows start at 16 bytes.
template <typename T>
__device__ inline Pack<T> load_some(const T* row, std::size_t at, std::size_t n, bool aligned) {
  if (aligned && at + Pack<T>::kSize <= n) return load_pack(row + at);
  Pack<T> pack;
  for (int i = 0; i < Pack<T>::kSize; ++i) pack.at[i] = at + i < n ? row[at + i] : T{};
  return pack;
}

}  // namespace strata::device::cuda
