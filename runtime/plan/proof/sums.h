#pragma once
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves that partial sums over virtual shards (Role::partial) are summed over ranks exactly once before anything else
// reads them, and that what reads a total reads that of the seam before it. Returns the first violation as a sentence.
// Each is an error that other systems made silently (Megatron-LM's issue 7452).
std::optional<std::string> find_unsummed(const StepPlan& plan);

// Proves that the gradient of each call is added exactly once to its unit's sum, that as many elements are added to a
// shared tensor's holder as other units compute for it, and that the norm afterwards counts as many elements as each
// unit has. Places within a unit are not compared. Returns the first violation as a sentence.
std::optional<std::string> find_miscounted(const StepPlan& plan);

}  // namespace strata::runtime
