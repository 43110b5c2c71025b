#pragma once
#include <cstddef>

#include "device/adamw_update.h"
#include "device/cpu/kernels/select.h"

namespace strata::device::cpu {

// n elements; second and parameter may be null.
struct AdamWElements {
  const std::byte *first, *second;
  float *master, *moment1, *moment2;
  std::byte* parameter;
};

// Indexed by the gradients' DType, then the parameter's.
struct AdamWKernels {
  void (*update[3][3])(const AdamWElements&, std::size_t n, const AdamWFactors&);
};
STRATA_KERNEL_TABLE(AdamWKernels, adamw_kernels)

}  // namespace strata::device::cpu
