#pragma once
#include <cstddef>
#include <cstdint>

#include "device/exact_sum.h"
#include "device/lane.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// A label that does not count.
inline constexpr std::int32_t kIgnoredLabel = -100;

// Cross-entropy of rows of fp32 logits [rows, vocab] against labels; losses: fp32 [rows], 0 where ignored. Then
// overwrites each row in place with scalars->loss_gradient * (softmax - onehot) in `gradient` dtype: row r of the
// gradient starts where row r of the logits starts, so its leading dimension is vocab elements of fp32, and
// 2 * vocab of a 16-bit dtype. With scalars null only the losses are computed.
void cross_entropy(Lane&, std::size_t rows, std::size_t vocab, View logits, const std::int32_t* labels,
                   const StepScalars* scalars, DType gradient, View losses);

// Adds the sum of `losses` (in order, fp64) to *total.
void sum_losses(Lane&, ConstView losses, ExactSum* total);

}  // namespace strata::device
