#include "device/operations.h"
#include "device/ops/step/consensus.h"
#include "device/ops/step/gradient_sum.h"
#include "device/ops/step/optimizer.h"

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

void pack_message(Lane& lane, const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                  StepMessage* message) {
  lane.operations().pack_message(lane, squares, loss, requests, message);
}

void resolve_step(Lane& lane, const StepMessage* messages, std::size_t ranks, StepScalars* scalars,
                  StepResult* result) {
  lane.operations().resolve_step(lane, messages, ranks, scalars, result);
}

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
