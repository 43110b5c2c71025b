#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"
#include "device/numeric/philox.h"

namespace strata::device::cpu {

// Indexed by DType. Uses elements index .. index + n - 1 of the stream; index is a multiple of 4. residual may be null.
struct DropoutKernels {
  void (*dropout[3])(const RandomStream&, std::uint64_t index, std::uint32_t threshold, float scale, const std::byte* x,
                     const std::byte* residual, std::byte* out, std::size_t n);
  void (*add[3])(const std::byte* x, const std::byte* residual, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(DropoutKernels, dropout_kernels)

}  // namespace strata::device::cpu
