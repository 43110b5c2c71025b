#pragma once
#include <cstddef>

#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// One block of rows of a norm; strides in elements. Centred: layer norm; otherwise RMS norm, which has no bias and no
// mean.
struct NormForward {
  std::size_t rows, groups, width, x_stride, y_stride;
  float eps;
  const std::byte *x, *gain, *bias;
  std::byte* y;
  float *mean, *rstd;
};
// dgain and dbias are this block's sums, fp32 [width], overwritten. residual may be null, and may be dx.
struct NormBackward {
  std::size_t rows, groups, width, x_stride, y_stride;
  const std::byte *dy, *x, *gain, *residual;
  const float *mean, *rstd;
  std::byte* dx;
  float *dgain, *dbias;
};

// Indexed by the DType of x, y, the gain and the bias.
struct NormKernels {
  void (*layernorm_forward[3])(const NormForward&);
  void (*rmsnorm_forward[3])(const NormForward&);
  void (*layernorm_backward[3])(const NormBackward&);
  void (*rmsnorm_backward[3])(const NormBackward&);
};
STRATA_KERNEL_TABLE(NormKernels, norm_kernels)

}  // namespace strata::device::cpu
