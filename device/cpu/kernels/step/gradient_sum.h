#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

inline constexpr std::size_t kSquareBlock = 4096;

// Indexed by the gradients' DType.
struct GradientSumKernels {
  // sum[i] = ((sum[i] or +0) + pieces[0][offset + i]) + pieces[1][offset + i] ...
  void (*add_pieces[3])(const std::byte* const* pieces, std::size_t count, std::size_t offset, float* sum,
                        std::size_t n, bool first);
  // The same for runs of `length` pieces, each summed from +0 and rounded. partial[i] has the sum of the first run's
  // first `before` pieces, and in the end that of an incomplete last run. It may be null if no run is.
  void (*add_runs[3])(const std::byte* const* pieces, std::size_t count, std::size_t offset, std::size_t length,
                      std::size_t before, float* partial, float* sum, std::size_t n, bool first);
  // The fp64 sum of squares of one block of 4,096; second may be null.
  double (*square_sum[3])(const std::byte* first, const std::byte* second);
};
STRATA_KERNEL_TABLE(GradientSumKernels, gradient_sum_kernels)

}  // namespace strata::device::cpu
