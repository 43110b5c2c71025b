#include "device/cpu/kernels/elementwise.h"

namespace strata::device::cpu::STRATA_ISA {

static void add(const float* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

extern const ElementwiseKernels elementwise_kernels_table = {add};

}  // namespace strata::device::cpu::STRATA_ISA
