#pragma once
#include <cuda_runtime.h>

#include "device/cuda/kernels/pack.cuh"

namespace strata::device::cuda {

// Replaces device/cuda/kernels/convert.cuh with the conversions of device/numeric/dtype.h.
template <typename T, int kN>
Floats<kN> widen(const Pack<T, kN>& v) {
  return widened(v);
}
template <typename T, int kN>
Pack<T, kN> narrow(const Floats<kN>& x) {
  return rounded<T>(x);
}

}  // namespace strata::device::cuda
