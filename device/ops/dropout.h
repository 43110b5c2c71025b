#pragma once
#include <cstdint>

#include "device/lane.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// Identifies one use of dropout. Its random numbers are Philox4x32-10 (Salmon et al. 2011) keyed by scalars->seed, with
// a counter made from the global micro-batch (scalars->first_micro_batch + micro_batch), `site` (unique per layer and
// place) and the element's index. So they are the same for any rank and number of threads, and when recomputed.
struct Dropout {
  float probability = 0;  // 0: everything is kept, without random numbers
  std::uint32_t site = 0;
  std::uint64_t micro_batch = 0;  // g * W + rank
  const StepScalars* scalars = nullptr;
  std::uint64_t first = 0;  // the index of the operand's first element
  // Above 0: the operand is so many columns of a matrix with rows of `stride` elements. All three are multiples of 4.
  std::uint32_t columns = 0, stride = 0;
};

// out = x * keep / (1 - p), or residual + that if residual is given. out may be x or residual.
void dropout(Lane&, const Dropout&, ConstView x, ConstView residual, View out);
// out = x + residual, rounded once. out may be x or residual.
inline void add_residual(Lane& lane, ConstView x, ConstView residual, View out) {
  dropout(lane, {}, x, residual, out);
}

}  // namespace strata::device
