#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Consecutive outputs [0, outputs) of a matrix times a vector; y is fp32. rows: each row of W is an output. columns:
// each row of W is an input. Rows are `stride` elements apart.
struct Matvec {
  std::size_t outputs, inputs, stride;
  const std::byte *w, *x;
  float* y;
};

// Indexed by the DType of W and x.
struct MatvecKernels {
  void (*rows[3])(const Matvec&);
  void (*columns[3])(const Matvec&);
};
STRATA_KERNEL_TABLE(MatvecKernels, matvec_kernels)

}  // namespace strata::device::cpu
