#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// DoRA (Liu et al. 2024): y = m / |W + s B A| (W + s B A) x, with one norm and one magnitude m per output.

// W is [out, in], or [in, out] if input_major; A is [rank, in], B [out, rank].
struct DoraShape {
  std::size_t out, in, rank;
  bool input_major;
  float scale;  // s
};
// squares[o] = |W + s B A|^2 of output o, in fp32, in an order that depends only on the shape. workspace:
// dora_workspace(shape).
void dora_squares(Lane&, const DoraShape&, ConstView w, ConstView a, ConstView b, View squares, View workspace);
std::size_t dora_workspace(const DoraShape&);

// norms[o] = sqrt(squares[o]), rounded to the magnitudes' dtype, because the initial magnitudes are the norms with the
// same rounding. scales[o] = magnitude[o] / norms[o], or 0 for a norm of 0. Both in fp32; `norms` may be `squares`.
void dora_scales(Lane&, ConstView squares, ConstView magnitude, View norms, View scales);

// out[r, c] = x[r, c] scales[c] + bias[c] + sign added[r, c], in fp32, rounded once. Rows of x, out and added are
// `stride` elements apart. scales (fp32), bias and added may be empty; out may be x or added.
void scale_columns(Lane&, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, ConstView scales,
                   ConstView bias, View out, ConstView added = {}, float sign = 1);

// out[c] = (sum over rows of x[r, c] y[r, c]) / divisors[c], or 0 for a divisor of 0, in fp32 in a fixed order, rounded
// once: the gradient of the magnitudes. Rows are `x_stride` and `y_stride` elements apart. y and out have x's dtype, or
// both have fp32. workspace: column_sum_workspace(rows, columns).
void column_dot(Lane&, std::size_t rows, std::size_t columns, std::size_t x_stride, ConstView x, std::size_t y_stride,
                ConstView y, ConstView divisors, View out, View workspace);

}  // namespace strata::device
