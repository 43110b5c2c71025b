#pragma once
#include <cstdint>

#include "device/dtype.h"

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
template <typename T>
__device__ inline void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

}  // namespace strata::device::cuda
