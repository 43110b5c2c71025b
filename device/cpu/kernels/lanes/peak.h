#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Multiplications and additions that wait neither for each other nor for memory: the most that a core does in a second.
// Each call does `rounds` rounds and returns their floating-point operations.
struct PeakKernels {
  double (*fp32)(std::size_t rounds);  // by FMA
  double (*bf16)(std::size_t rounds);  // by VDPBF16PS; null where kernels do not have it
};
STRATA_BF16_KERNEL_TABLE(PeakKernels, peak_kernels)

}  // namespace strata::device::cpu
