#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/select.h"
#include "device/dtype.h"

namespace strata::device::cpu {

// The two ends of a product in fp32 of narrower operands. Strides count elements between rows.
struct ProductKernels {
  // to[r, c] = from[r, c], to dense: [rows, columns].
  void (*widen_bf16)(const bf16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to);
  void (*widen_fp16)(const fp16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to);
  // to[r, c] = sum[r, c] rounded, from dense.
  void (*round_bf16)(const float* sum, std::int64_t rows, std::int64_t columns, bf16* to, std::int64_t stride);
  void (*round_fp16)(const float* sum, std::int64_t rows, std::int64_t columns, fp16* to, std::int64_t stride);
};
STRATA_KERNEL_TABLE(ProductKernels, product_kernels)

}  // namespace strata::device::cpu
