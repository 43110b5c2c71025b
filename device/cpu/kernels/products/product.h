#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Conversions before and after an fp32 product of narrower operands, indexed by DType. Strides count elements between
// rows.
struct ProductKernels {
  // to[r, c] = from[r, c]; the result is dense.
  void (*widen[3])(const std::byte* from, std::size_t stride, std::size_t rows, std::size_t columns, float* to);
  // to[r, c] = from[r, c] rounded; the input is dense.
  void (*round[3])(const float* from, std::size_t rows, std::size_t columns, std::byte* to, std::size_t stride);
};
STRATA_KERNEL_TABLE(ProductKernels, product_kernels)

}  // namespace strata::device::cpu
