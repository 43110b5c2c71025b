#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// The two ends of a product in fp32 of narrower operands, by DType. Strides count elements between rows.
struct ProductKernels {
  // to[r, c] = from[r, c], to dense.
  void (*widen[3])(const std::byte* from, std::size_t stride, std::size_t rows, std::size_t columns, float* to);
  // to[r, c] = from[r, c] rounded, from dense.
  void (*round[3])(const float* from, std::size_t rows, std::size_t columns, std::byte* to, std::size_t stride);
};
STRATA_KERNEL_TABLE(ProductKernels, product_kernels)

}  // namespace strata::device::cpu
