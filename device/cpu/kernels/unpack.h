#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Arrays are indexed by the DType of out.
struct UnpackKernels {
  // A block of nf4 (device/numeric/nf4.h) with its scales in fp32.
  void (*nf4[3])(const float* scales, const std::byte* codes, std::byte* out);
};
STRATA_KERNEL_TABLE(UnpackKernels, unpack_kernels)

}  // namespace strata::device::cpu
