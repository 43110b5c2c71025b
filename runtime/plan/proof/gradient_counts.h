#pragma once
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves that the gradient of each call is added exactly once to its unit's sum, that what other units compute for a
// shared tensor is added once to its holder's, and that the gradient norm counts each unit once, after all of that.
// Returns the first violation as a sentence.
std::optional<std::string> find_miscounted(const StepPlan& plan);

}  // namespace strata::runtime
