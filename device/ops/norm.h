#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// `rows` rows of `groups` vectors with `width` elements each. The vectors of a row are adjacent; rows are x_stride and
// y_stride elements apart (groups > 1: one norm per attention head inside a packed q/k/v row).
struct NormShape {
  std::size_t rows, width;
  std::size_t groups = 1;
  std::size_t x_stride, y_stride;
  float eps;
};

// y = (x - mean) * rstd * gain + bias over the last dimension (Ba et al. 2016). Saves mean and rstd, fp32, [rows *
// groups]. All arithmetic is fp32, with one rounding into y.
void layernorm_forward(Lane&, const NormShape&, ConstView x, ConstView gain, ConstView bias, View y, View mean,
                       View rstd);
// dx = dresidual + d/dx. dgain and dbias are summed over rows in fp32 in a fixed order, and have their views' dtypes.
// dresidual may be empty, and may be dx itself. dy has y's layout, dx has x's.
void layernorm_backward(Lane&, const NormShape&, ConstView dy, ConstView x, ConstView gain, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, View dgain, View dbias, View workspace);

// y = x * rsqrt(mean(x^2) + eps) * gain (Zhang & Sennrich 2019). Saves rstd, fp32, [rows * groups].
void rmsnorm_forward(Lane&, const NormShape&, ConstView x, ConstView gain, View y, View rstd);
void rmsnorm_backward(Lane&, const NormShape&, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                      ConstView dresidual, View dx, View dgain, View workspace);

// The number of shares into which a GPU cuts each block of rows (device/numeric/row_blocks.h) to sum dgain and dbias in
// parallel: 128 thread blocks, about one per multiprocessor.
inline constexpr std::size_t kNormShares = 4;

// Bytes of workspace that either backward needs, on any device.
std::size_t norm_backward_workspace(const NormShape&);

}  // namespace strata::device
