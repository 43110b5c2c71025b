#pragma once
#include "tests/device/emulation/block.h"

namespace strata::device::cuda {

// Replaces device/cuda/kernels/dynamic_shared.cuh, because C++ has no arrays whose size is set at launch.
template <typename T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulation::dynamic_shared_memory());
}

}  // namespace strata::device::cuda
