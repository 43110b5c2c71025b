#include "device/ops/step/optimizer.h"

#include "device/operations.h"

namespace strata::device {

void update(Lane& lane, const Optimizer& optimizer, const StepScalars* scalars, const UpdateOperands& s,
            OnSkip on_skip) {
  const std::size_t size = s.master.size;
  STRATA_CHECK(s.master.dtype == DType::fp32);
  STRATA_CHECK_EQ(s.first.size, size);
  STRATA_CHECK(!s.second || (s.second.size == size && s.second.dtype == s.first.dtype));
  STRATA_CHECK(!s.parameter || s.parameter.size == size);
  STRATA_CHECK(s.moment1 && (s.moment2 || moment_count(optimizer.algorithm) < 2));
  STRATA_CHECK_EQ(s.begin % kMomentBlock, 0u);
  STRATA_CHECK_LT(s.unit, kMomentSites);
  lane.operations().update(lane, optimizer, scalars, s, on_skip);
}

}  // namespace strata::device
