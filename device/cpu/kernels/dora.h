#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Arrays are indexed by DType of what is not float.
struct DoraKernels {
  // The sum of squares of w[i] + sum over r of scale b[r] a[r * n + i]: 16 partial sums, added in order.
  float (*row_square)(const std::byte* w, std::size_t n, const float* a, const float* b, std::size_t rank, float scale);
  // The same of `count` neighbouring columns of w[n, stride], with b[r * stride + column].
  void (*column_squares)(const std::byte* w, std::size_t n, std::size_t count, std::size_t stride, const float* a,
                         const float* b, std::size_t rank, float scale, float* sums);
  // out = x scales + bias + sign added; all but x may be null.
  void (*scale_row)(const std::byte* x, const float* scales, const std::byte* bias, const std::byte* added, float sign,
                    std::byte* out, std::size_t n);
  // sums[c] = sum over the rows, in order, of x y, starting from +0. y is of x's dtype, or fp32.
  using ColumnDots = void(const std::byte* x, const std::byte* y, std::size_t rows, std::size_t columns,
                          std::size_t stride, float* sums);
  ColumnDots *column_dots, *column_dots_fp32;
};
struct DoraKernelTable {
  DoraKernels of[3];
};
STRATA_KERNEL_TABLE(DoraKernelTable, dora_kernels)

}  // namespace strata::device::cpu
