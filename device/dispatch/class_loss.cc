#include "device/ops/losses/class_loss.h"

#include "device/operations.h"

namespace strata::device {

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

}  // namespace strata::device
