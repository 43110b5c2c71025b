#pragma once
#include "tests/device/emulation/block.h"

namespace strata::device::cuda {

// In place of device/cuda/kernels/dynamic_shared.cuh: C++ has no arrays whose size the launch gives.
template <typename T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulation::dynamic_shared_memory());
}

}  // namespace strata::device::cuda
