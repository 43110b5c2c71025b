#pragma once
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves that the gradient of each call is added exactly once to its unit's sum, that as much as other units compute
// for a shared tensor is added to its holder's, and that the norm counts as many elements as each unit has, after all
// of that. Places within a unit are not compared. Returns the first violation as a sentence.
std::optional<std::string> find_miscounted(const StepPlan& plan);

}  // namespace strata::runtime
