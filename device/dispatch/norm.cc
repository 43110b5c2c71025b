#include "device/ops/norm.h"

#include "device/numeric/row_blocks.h"
#include "device/operations.h"

namespace strata::device {
namespace {

void check_vectors(const NormShape& shape, ConstView view, std::size_t stride) {
  if (shape.rows > 0) STRATA_CHECK_LE((shape.rows - 1) * stride + shape.groups * shape.width, view.size);
}

void check_saved(const NormShape& shape, ConstView saved) {
  STRATA_CHECK(saved.dtype == DType::fp32);
  STRATA_CHECK_EQ(saved.size, shape.rows * shape.groups);
}

void check_forward(const NormShape& shape, ConstView x, ConstView gain, ConstView y, ConstView rstd) {
  check_vectors(shape, x, shape.x_stride);
  check_vectors(shape, y, shape.y_stride);
  check_saved(shape, rstd);
  STRATA_CHECK_EQ(gain.size, shape.width);
  STRATA_CHECK(x.dtype == y.dtype && x.dtype == gain.dtype);
}

void check_backward(const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                    ConstView residual, ConstView dx, ConstView dgain, ConstView workspace) {
  check_vectors(shape, x, shape.x_stride);
  check_vectors(shape, dx, shape.x_stride);
  check_vectors(shape, dy, shape.y_stride);
  if (residual) check_vectors(shape, residual, shape.x_stride);
  check_saved(shape, rstd);
  STRATA_CHECK_EQ(gain.size, shape.width);
  STRATA_CHECK_EQ(dgain.size, shape.width);
  STRATA_CHECK(x.dtype == dy.dtype && x.dtype == gain.dtype && x.dtype == dx.dtype);
  STRATA_CHECK(!residual || residual.dtype == x.dtype);
  STRATA_CHECK_LE(norm_backward_workspace(shape), workspace.bytes());
}

}  // namespace

void layernorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, ConstView bias, View y,
                       View mean, View rstd) {
  check_forward(shape, x, gain, y, rstd);
  check_saved(shape, mean);
  STRATA_CHECK_EQ(bias.size, shape.width);
  STRATA_CHECK(bias.dtype == x.dtype);
  lane.operations().layernorm_forward(lane, shape, x, gain, bias, y, mean, rstd);
}

void layernorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, View dgain, View dbias, View workspace) {
  check_backward(shape, dy, x, gain, rstd, dresidual, dx, dgain, workspace);
  check_saved(shape, mean);
  STRATA_CHECK_EQ(dbias.size, shape.width);
  lane.operations().layernorm_backward(lane, shape, dy, x, gain, mean, rstd, dresidual, dx, dgain, dbias, workspace);
}

void rmsnorm_forward(Lane& lane, const NormShape& shape, ConstView x, ConstView gain, View y, View rstd) {
  check_forward(shape, x, gain, y, rstd);
  lane.operations().rmsnorm_forward(lane, shape, x, gain, y, rstd);
}

void rmsnorm_backward(Lane& lane, const NormShape& shape, ConstView dy, ConstView x, ConstView gain, ConstView rstd,
                      ConstView dresidual, View dx, View dgain, View workspace) {
  check_backward(shape, dy, x, gain, rstd, dresidual, dx, dgain, workspace);
  lane.operations().rmsnorm_backward(lane, shape, dy, x, gain, rstd, dresidual, dx, dgain, workspace);
}

std::size_t norm_backward_workspace(const NormShape& shape) {
  return 2 * kNormShares * RowBlocks(shape.rows).count * shape.width * sizeof(float);
}

}  // namespace strata::device
