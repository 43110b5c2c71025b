#pragma once
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves that the gradient of each call is added exactly once to its unit's sum, that as many elements are added to a
// shared tensor's holder as other units compute for it, and that the norm afterwards counts as many elements as each
// unit has. Places within a unit are not compared. Returns the first violation as a sentence.
std::optional<std::string> find_miscounted(const StepPlan& plan);

}  // namespace strata::runtime
