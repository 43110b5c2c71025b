#pragma once
// runtime/plan/proof/ proves plans without knowing how they were made: one rank's plan (here; cells.h and
// sums.h are its parts), and that the plans of a pipeline's stages go together (stage_match.h).

#include <array>
#include <optional>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves a plan from its tasks, waits and offsets alone; returns the first violation as a sentence. It knows nothing of
// what tasks compute, or of how the plan was made. It takes about 0.1 s for the largest plans. For a proven plan, over
// every kind of step that may follow another in a run (first, full, drain, with and without optional tasks):
// - no task reads a buffer that has not been written, or that another has overwritten;
// - no task reads a copy whose source has changed since;
// - no two tasks that may run at the same time touch the same memory, unless both only read;
// - partial sums over virtual shards, and gradients, are added exactly once (sums.h);
// - every buffer lies within its tier's capacity, and every task uses only tiers that its lane can address.
std::optional<std::string> find_violation(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity);

}  // namespace strata::runtime
