#pragma once
#include "device/lane.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// As the recipe gives them, in fp64: 1 - beta2 taken from a float of 0.999 would be wrong in its fifth digit.
struct AdamW {
  double beta1, beta2, eps, weight_decay;
};

// Decoupled AdamW (Loshchilov & Hutter 2019) as PyTorch computes it, elementwise, with one fixed order of fused
// multiply-adds and IEEE sqrt and division, so that any device and any vector width give the same bits. The gradient
// is ((+0 + first[i]) + second[i]) * scalars->gradient_factor; second may be empty. Updates master, moment1, moment2
// (fp32) and writes `parameter` rounded to its dtype (empty where the master is the parameter).
// Does nothing when scalars->skip is set at the time it runs.
void adamw(Lane&, const AdamW&, const StepScalars*, ConstView first, ConstView second, View master, View moment1,
           View moment2, View parameter);

}  // namespace strata::device
