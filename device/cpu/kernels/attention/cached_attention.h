#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// One query of one head: positions [begin, end). Keys lie in blocks of 16 positions, [head_dim, 16] each; values
// [position, head_dim]. scores: fp32, room for `end` rounded up to 16.
struct CachedQuery {
  std::size_t begin, end, head_dim;
  float scale;
  const std::byte *q, *keys, *values;
  std::byte* o;
  float* scores;
};

// Indexed by the DType of q, the cache and o.
struct CachedAttentionKernels {
  void (*attend[3])(const CachedQuery&);
};
STRATA_KERNEL_TABLE(CachedAttentionKernels, cached_attention_kernels)

}  // namespace strata::device::cpu
