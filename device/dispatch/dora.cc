#include "device/ops/dora.h"

#include "device/operations.h"
#include "device/ops/elementwise.h"

namespace strata::device {

void dora_squares(Lane& lane, const DoraShape& shape, ConstView w, ConstView a, ConstView b, View squares,
                  View workspace) {
  STRATA_CHECK_EQ(w.size, shape.out * shape.in);
  STRATA_CHECK_EQ(a.size, shape.rank * shape.in);
  STRATA_CHECK_EQ(b.size, shape.out * shape.rank);
  STRATA_CHECK_EQ(squares.size, shape.out);
  STRATA_CHECK(w.dtype == a.dtype && w.dtype == b.dtype && squares.dtype == DType::fp32);
  STRATA_CHECK_LE(dora_workspace(shape), workspace.bytes());
  lane.operations().dora_squares(lane, shape, w, a, b, squares, workspace);
}

void dora_scales(Lane& lane, ConstView squares, ConstView magnitude, View norms, View scales) {
  STRATA_CHECK_EQ(squares.size, magnitude.size);
  STRATA_CHECK_EQ(norms.size, magnitude.size);
  STRATA_CHECK_EQ(scales.size, magnitude.size);
  STRATA_CHECK(squares.dtype == DType::fp32 && norms.dtype == DType::fp32 && scales.dtype == DType::fp32);
  lane.operations().dora_scales(lane, squares, magnitude, norms, scales);
}

// A and B in fp32, and B transposed.
std::size_t dora_workspace(const DoraShape& shape) {
  return shape.rank * (shape.in + 2 * shape.out) * sizeof(float);
}

void scale_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, ConstView scales,
                   ConstView bias, View out, ConstView added, float sign) {
  if (rows == 0) return;
  STRATA_CHECK_LE((rows - 1) * stride + columns, x.size);
  STRATA_CHECK_LE((rows - 1) * stride + columns, out.size);
  STRATA_CHECK(!added || (added.dtype == x.dtype && (rows - 1) * stride + columns <= added.size));
  STRATA_CHECK(x.dtype == out.dtype && (!bias || bias.dtype == x.dtype));
  STRATA_CHECK(!scales || (scales.dtype == DType::fp32 && scales.size == columns));
  lane.operations().scale_columns(lane, rows, columns, stride, x, scales, bias, out, added, sign);
}

void column_dot(Lane& lane, std::size_t rows, std::size_t columns, std::size_t x_stride, ConstView x,
                std::size_t y_stride, ConstView y, ConstView divisors, View out, View workspace) {
  STRATA_CHECK_EQ(out.size, columns);
  STRATA_CHECK_EQ(divisors.size, columns);
  STRATA_CHECK(rows > 0 && y.dtype == out.dtype && divisors.dtype == DType::fp32);
  STRATA_CHECK(y.dtype == x.dtype || y.dtype == DType::fp32);
  STRATA_CHECK_LE((rows - 1) * x_stride + columns, x.size);
  STRATA_CHECK_LE((rows - 1) * y_stride + columns, y.size);
  STRATA_CHECK_LE(column_sum_workspace(rows, columns), workspace.bytes());
  lane.operations().column_dot(lane, rows, columns, x_stride, x, y_stride, y, divisors, out, workspace);
}

}  // namespace strata::device
