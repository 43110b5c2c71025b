#pragma once
#include <cstddef>

#include "device/cpu/kernels/select.h"

namespace strata::device::cpu {

struct ElementwiseKernels {
  void (*add)(const float* from, float* to, std::size_t n);
};
STRATA_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels)

}  // namespace strata::device::cpu
