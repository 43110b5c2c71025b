#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/ops/losses/cross_entropy.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// What a classifier's scores are compared with: a row's label is
enum class ClassTarget : std::uint8_t {
  one,     // a class: cross-entropy of the softmax
  many,    // bit c is class c, 31 at most: the mean over classes of the cross-entropy of each sigmoid
  number,  // the bits of a float: the square of the difference; one class
  none     // whatever it is: there is no loss
};

// fp32 scores of `rows` rows for `classes` classes; rows start `stride` elements apart.
struct ClassScoreShape {
  std::size_t rows, classes, stride;
  ClassTarget target;
};

// losses: fp32 [rows], 0 if the label is kIgnoredLabel. weights: fp32 [classes] that a class's loss is multiplied by;
// null: 1. d_scores: scalars->loss_gradient times the gradient, of the scores' layout in its own dtype; empty: none.
void class_loss(Lane&, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels, const float* weights,
                const StepScalars* scalars, View losses, View d_scores);

// y = tanh(x), elementwise; y may be x. dx = dy * (1 - y^2), from what forward gave; dx may be dy.
void tanh_forward(Lane&, ConstView x, View y);
void tanh_backward(Lane&, ConstView dy, ConstView y, View dx);
// y = max(x, 0), which keeps NaN; dx = dy where y is above 0.
void relu_forward(Lane&, ConstView x, View y);
void relu_backward(Lane&, ConstView dy, ConstView y, View dx);

}  // namespace strata::device
