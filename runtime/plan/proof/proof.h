#pragma once
// runtime/plan/proof/ proves plans independently of how they were made: that one rank's plan is correct, and that the
// plans of a pipeline's stages fit together. cells.h cuts memory for the first proof.

#include <array>
#include <optional>
#include <span>
#include <string>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Proves a plan only from its tasks, waits and offsets. Returns the first violation as a sentence. It does not depend
// on what tasks compute or on how the plan was made. It takes about 0.1 s for the largest plans. For a proven plan,
// over every kind of step that may follow another in a run (first, full, drain, with and without optional tasks):
// - no task reads a buffer that has not been written, or that another has overwritten;
// - no task reads a copy whose source has changed since;
// - no two tasks that may run at the same time touch the same memory, unless both only read;
// - partial sums over virtual shards, and gradients, are added exactly once (sums.cc);
// - every buffer lies within its tier's capacity, and every task uses only tiers that its lane can address.
std::optional<std::string> find_violation(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity);

// Proves that partial sums over virtual shards (Role::partial) are summed over ranks exactly once before anything else
// reads them, and that whatever reads a total reads the total of the seam before it. Returns the first violation as a
// sentence. Other systems have made such errors silently (Megatron-LM's issue 7452).
std::optional<std::string> find_unsummed(const StepPlan& plan);

// Proves that the gradient of each call is added exactly once to its unit's sum, that as many elements are added to a
// shared tensor's holder as other units compute for it, and that the norm afterwards counts as many elements as each
// unit has. Places within a unit are not compared. Returns the first violation as a sentence.
std::optional<std::string> find_miscounted(const StepPlan& plan);

// Proves that the plans of all stages of a pipeline, by stage, fit together; returns the first violation as a sentence.
// For proven plans:
// - the n-th message that a stage sends to another in a lane is the n-th that the other receives there, of the same
//   bytes;
// - no order of lanes makes stages wait for each other forever, even if a send ends only with its receive.
std::optional<std::string> find_mismatch(std::span<const StepPlan* const> stages);

}  // namespace strata::runtime
