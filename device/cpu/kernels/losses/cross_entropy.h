#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// The maximum of a row and the sum of e^(x - largest).
struct SoftmaxSum {
  float largest;
  double sum;
};

struct CrossEntropyKernels {
  // Continues `before` (-inf and 0 at the start) with the next n values.
  SoftmaxSum (*softmax_sum)(const float* x, std::size_t n, SoftmaxSum before);
  // Overwrites the row in place, from its start, with factor * (e^(x - largest) * scale - (i == label)) in the dtype of
  // the index. label >= n: the label is in another tile.
  void (*gradient[3])(float* x, std::size_t n, float largest, float scale, float factor, std::size_t label);
};
STRATA_KERNEL_TABLE(CrossEntropyKernels, cross_entropy_kernels)

}  // namespace strata::device::cpu
