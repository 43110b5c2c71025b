#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Indexed by DType. n elements, or one row of `width` outputs for SwiGLU and GeGLU. Outputs may overwrite inputs.
struct ActivationKernels {
  void (*gelu_forward[3])(const std::byte* x, std::byte* y, std::size_t n);
  void (*gelu_backward[3])(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n);
  void (*gelu_erf_forward[3])(const std::byte* x, std::byte* y, std::size_t n);
  void (*gelu_erf_backward[3])(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n);
  void (*swiglu_forward[3])(const std::byte* gate_up, std::byte* y, std::size_t width);
  void (*swiglu_backward[3])(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up, std::size_t width);
  void (*geglu_forward[3])(const std::byte* gate_up, std::byte* y, std::size_t width);
  void (*geglu_backward[3])(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up, std::size_t width);
};
STRATA_KERNEL_TABLE(ActivationKernels, activation_kernels)

}  // namespace strata::device::cpu
