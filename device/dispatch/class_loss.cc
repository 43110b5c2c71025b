#include "device/ops/losses/class_loss.h"

#include "device/operations.h"

namespace strata::device {
namespace {

void check_tanh(ConstView x, ConstView y) {
  STRATA_CHECK_EQ(x.size, y.size);
  STRATA_CHECK(x.dtype == y.dtype);
}

}  // namespace

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  STRATA_CHECK_LE(shape.classes, shape.stride);
  STRATA_CHECK_LE(shape.rows * shape.stride, scores.size);
  STRATA_CHECK_EQ(shape.rows, losses.size);
  STRATA_CHECK(scores.dtype == DType::fp32 && losses.dtype == DType::fp32);
  STRATA_CHECK(!d_scores || shape.rows * shape.stride <= d_scores.size);
  STRATA_CHECK_EQ(class_set_words(shape.target, shape.classes) > 0, sets != nullptr);
  STRATA_CHECK(shape.target != ClassTarget::number || shape.classes == 1);
  lane.operations().class_loss(lane, shape, scores, labels, sets, weights, scalars, losses, d_scores);
}

void tanh_forward(Lane& lane, ConstView x, View y) {
  check_tanh(x, y);
  lane.operations().tanh_forward(lane, x, y);
}

void tanh_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  check_tanh(dy, y);
  check_tanh(dy, dx);
  lane.operations().tanh_backward(lane, dy, y, dx);
}

void relu_forward(Lane& lane, ConstView x, View y) {
  check_tanh(x, y);
  lane.operations().relu_forward(lane, x, y);
}

void relu_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  check_tanh(dy, y);
  check_tanh(dy, dx);
  lane.operations().relu_backward(lane, dy, y, dx);
}

}  // namespace strata::device
