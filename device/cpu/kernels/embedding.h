#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Indexed by DType; rows of `width` elements.
struct EmbeddingKernels {
  // out = a + b
  void (*add_rows[3])(const std::byte* a, const std::byte* b, std::byte* out, std::size_t width);
  // out = ((rows[which[0]] + rows[which[1]]) + ...), in fp32, rounded once to out's dtype (second index); count >= 1.
  void (*sum_rows[3][3])(const std::byte* rows, const std::uint32_t* which, std::size_t count, std::byte* out,
                         std::size_t width);
};
STRATA_KERNEL_TABLE(EmbeddingKernels, embedding_kernels)

}  // namespace strata::device::cpu
