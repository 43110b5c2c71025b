#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/ops/losses/cross_entropy.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// The target of a classifier's scores. A row's label is
enum class ClassTarget : std::uint8_t {
  one,     // a class: cross-entropy of the softmax
  many,    // any number of classes, bit c is class c: the mean over classes of each sigmoid's cross-entropy
  number,  // the bits of a float: the squared difference; one class
  none     // anything: there is no loss
};

// The number of 32-bit words for a row's set of classes if the label, which has 31 bits for it, is too small: bit c %
// 32 of word c / 32 is class c, and the label only determines whether the row counts. 0: the label holds the target.
constexpr std::size_t class_set_words(ClassTarget target, std::size_t classes) {
  return target == ClassTarget::many && classes > 31 ? (classes + 31) / 32 : 0;
}

// fp32 scores of `rows` rows for `classes` classes; rows start `stride` elements apart.
struct ClassScoreShape {
  std::size_t rows, classes, stride;
  ClassTarget target;
};

// losses: fp32 [rows], 0 if the label is kIgnoredLabel. sets: [rows, class_set_words()], in place of other labels; null
// if there are no such words. weights: fp32 [classes], factors of the classes' losses; null: 1. d_scores:
// scalars->loss_gradient times the gradient, in the scores' layout and its own dtype; empty: not computed.
void class_loss(Lane&, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores);

}  // namespace strata::device
