#pragma once
// runtime/planner/ compiles a step: make_plan (here) turns a recipe, a model's units and the number of ranks into a
// plan, in milliseconds. visits.h gives the order in which units are visited, fetches.h brings their parameters ahead
// of that, gradients.h and updates.h take what comes out, transfers.h moves it between tiers, border_tasks.h writes
// what happens at the step's boundary. It asks units what they are and knows no kinds of them.

#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// The step as tasks, with waits, offsets, predicted memory and bytes. Milliseconds; touches no device.
StepPlan make_plan(const PlanRequest& request);

}  // namespace strata::runtime
