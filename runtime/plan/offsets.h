#pragma once
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// First and last task that uses each buffer, in issue order; whole-cycle buffers live throughout.
struct Lifetime {
  int first, last;
};
std::vector<Lifetime> lifetimes_of(const StepPlan& plan);
// For how long a buffer keeps its bytes from others. A reduction runs beside the call that was issued before it, so
// what it writes has its place from that call on: in memory which the call leaves, it would run after.
std::vector<Lifetime> occupations_of(const StepPlan& plan);

// Gives every buffer its offset in its tier's arena. `beside`: a plan with offsets whose memory this one shares between
// two of its steps. The units' parameters are then its own, and all else lies where nothing of it lives from step to
// step.
void assign_offsets(StepPlan& plan, const StepPlan* beside = nullptr);
// Fills in plan.memory, of a plan with offsets.
void predict_memory(StepPlan& plan);

}  // namespace strata::runtime
