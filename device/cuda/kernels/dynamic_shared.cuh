#pragma once
#include <cuda_runtime.h>

namespace strata::device::cuda {

// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char strata_dynamic_shared[];
  return reinterpret_cast<T*>(strata_dynamic_shared);
}

}  // namespace strata::device::cuda
