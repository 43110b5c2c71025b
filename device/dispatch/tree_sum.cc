#include "device/ops/tree_sum.h"

#include <bit>

#include "base/error.h"
#include "device/operations.h"

namespace strata::device {

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  STRATA_CHECK(std::has_single_bit(count));
  STRATA_CHECK_LE(count, kMostPartials);
  STRATA_CHECK(partials.dtype == DType::fp32);
  STRATA_CHECK_EQ(partials.size, count * out.size);
  if (out.size == 0) return;
  if (bias) {
    STRATA_CHECK(bias.dtype == out.dtype);
    STRATA_CHECK_EQ(out.size % bias.size, 0u);
  }
  lane.operations().tree_sum(lane, count, partials, bias, out);
}

}  // namespace strata::device
