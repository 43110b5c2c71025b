#include "device/ops/dropout.h"

#include <limits>

#include "device/operations.h"

namespace strata::device {

void dropout(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  STRATA_CHECK_EQ(x.size, out.size);
  STRATA_CHECK(x.dtype == out.dtype);
  STRATA_CHECK(!residual || (residual.size == x.size && residual.dtype == x.dtype));
  STRATA_CHECK(use.probability >= 0.0f && use.probability < 1.0f);
  STRATA_CHECK_EQ(use.first % 4, 0u);
  STRATA_CHECK(use.columns % 4 == 0 && use.stride % 4 == 0);
  STRATA_CHECK(use.columns == 0 || (x.size % use.columns == 0 && x.size <= std::numeric_limits<std::uint32_t>::max()));
  lane.operations().dropout(lane, use, x, residual, out);
}

}  // namespace strata::device
