#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// One row of `heads` vectors of 2 * half elements, in place; indexed by DType.
struct RopeKernels {
  void (*rotate[3])(std::byte* row, std::size_t heads, std::size_t half, const float* cos, const float* sin,
                    bool inverse);
};
STRATA_KERNEL_TABLE(RopeKernels, rope_kernels)

}  // namespace strata::device::cpu
