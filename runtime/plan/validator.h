#pragma once
#include <array>
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves, from tasks, waits and offsets alone, over steps of every kind that a run may have one behind the other (the
// first, full ones, drains, each with and without what a step may leave out), that: no task reads a buffer before it
// was written, or that another has overwritten since; none reads a copy of what has changed since it was made; no two
// tasks that may run at the same time touch the same memory, unless both only read; every buffer lies inside its
// tier's capacity; and every task uses only tiers that its lane can address. Returns the first violation as a sentence.
// Knows nothing of what tasks compute, nor of how the plan was made. Some 0.1 s for the largest plans.
std::optional<std::string> find_violation(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity);

}  // namespace strata::runtime
