#pragma once
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The first and last tasks that use a buffer, in issue order. A buffer that lives from step to step spans all tasks.
struct Lifetime {
  int first, last;
};
std::vector<Lifetime> lifetimes_of(const StepPlan& plan);
// The lifetimes used to assign memory. A reduction should overlap with the call issued before it, so its buffers occupy
// memory from that call on. If they reused memory that the call releases, the reduction would have to wait for the
// call.
std::vector<Lifetime> memory_lifetimes_of(const StepPlan& plan);

// Gives every buffer its offset in its tier's arena. `memory_of`: a plan with offsets, between whose steps this one
// runs in the same memory. It then uses that plan's parameters in place, and puts everything else after the buffers
// that live from step to step.
void assign_offsets(StepPlan& plan, const StepPlan* memory_of);
// Fills in plan.memory. The plan must have offsets.
void predict_memory(StepPlan& plan);

// Fills in the waits of every task. The plan must have offsets. The rule is in waits.cc.
void derive_waits(StepPlan& plan);

}  // namespace strata::runtime
