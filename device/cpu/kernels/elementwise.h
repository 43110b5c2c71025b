#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Arrays are indexed by DType (of `from` or x, then of `to`).
struct ElementwiseKernels {
  void (*cast[3][3])(const std::byte* from, std::byte* to, std::size_t n);
  void (*add[3])(const std::byte* from, float* to, std::size_t n);
  void (*scale[3])(const std::byte* x, float factor, std::byte* out, std::size_t n);
  std::uint64_t (*count_nonfinite[3])(const std::byte* x, std::size_t n);
  // sums[j] = sum over the rows, in order, of x[r * stride + j], starting from +0.
  void (*column_sum[3])(const std::byte* x, std::size_t rows, std::size_t columns, std::size_t stride, float* sums);
  // out[j] = ((partials[0][j] + partials[1][j]) + ...), rounded once to out's dtype. Partials are `stride` apart.
  void (*add_partials[3])(const float* partials, std::size_t count, std::size_t stride, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels)

}  // namespace strata::device::cpu
