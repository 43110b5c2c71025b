#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// By DType of bias and out.
struct TreeSumKernels {
  // out[i] = the sum of partials[p * stride + i] over the tree, plus bias[i] unless bias is null, rounded once. `count`
  // is a power of two.
  void (*tree_sum[3])(const float* partials, std::size_t count, std::size_t stride, const std::byte* bias,
                      std::byte* out, std::size_t n);
  // The same of partials[p][begin + i].
  void (*tree_sum_of_pieces[3])(const std::byte* const* partials, std::size_t count, std::size_t begin,
                                const std::byte* bias, std::byte* out, std::size_t n);
};
STRATA_KERNEL_TABLE(TreeSumKernels, tree_sum_kernels)

}  // namespace strata::device::cpu
