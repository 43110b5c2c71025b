#include "device/ops/step/gradient_sum.h"

#include "device/operations.h"

namespace strata::device {

void gradient_sum(Lane& lane, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first,
                  const GradientRuns& runs) {
  STRATA_CHECK(sum.dtype == DType::fp32);
  STRATA_CHECK_LT(runs.before, runs.length);
  if (runs.partial) {
    STRATA_CHECK(runs.partial.dtype == DType::fp32);
    STRATA_CHECK_EQ(runs.partial.size, sum.size);
  } else {
    STRATA_CHECK_EQ(runs.before, 0u);
    STRATA_CHECK(!GradientRuns::needs_partial(runs.length, pieces.size()));
  }
  lane.operations().gradient_sum(lane, pieces, dtype, sum, first, runs);
}

void gradient_square_sum(Lane& lane, ConstView first, ConstView second, ExactSum* total) {
  STRATA_CHECK_EQ(first.size % kSquareBlock, 0u);
  STRATA_CHECK(!second || (second.size == first.size && second.dtype == first.dtype));
  lane.operations().gradient_square_sum(lane, first, second, total);
}

}  // namespace strata::device
