#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Indexed by the function (device/ops/activation.h: GELUs, gates) and by DType. n elements, or one row of `width`
// outputs of a gated MLP. Outputs may overwrite inputs.
struct ActivationKernels {
  void (*forward[2][3])(const std::byte* x, std::byte* y, std::size_t n);
  void (*backward[2][3])(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n);
  void (*gated_forward[2][3])(const std::byte* gate_up, std::byte* y, std::size_t width);
  void (*gated_backward[2][3])(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up, std::size_t width);
};
STRATA_KERNEL_TABLE(ActivationKernels, activation_kernels)

}  // namespace strata::device::cpu
