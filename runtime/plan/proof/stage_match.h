#pragma once
#include <optional>
#include <span>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves that the plans of all stages of a pipeline, by stage, fit together; returns the first violation as a sentence.
// For proven plans:
// - the n-th message that a stage sends to another in a lane is the n-th that the other receives there, of the same
//   bytes;
// - no order of lanes makes stages wait for each other for ever, even if a send ends only with its receive.
std::optional<std::string> find_mismatch(std::span<const StepPlan* const> stages);

}  // namespace strata::runtime
