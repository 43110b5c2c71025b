#pragma once
// runtime/planner/ compiles a step: make_plan (here) turns a recipe, a model's units and the number of ranks into a
// plan. visits.h orders the visits to units, fetches.h moves state between tiers and prefetches parameters, gradients.h
// reduces and sums gradients, updates.h applies the optimizer, and boundary_tasks.h adds the tasks at the step's
// boundary. The planner asks units for their properties and does not depend on families.

#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// Returns the step's plan, with waits, offsets, and predicted memory and traffic. Takes milliseconds; touches no
// device.
StepPlan make_plan(const PlanRequest& request);
// The same without waits, which take most of the time: for a plan that may not fit. derive_waits() adds them.
StepPlan draft_plan(const PlanRequest& request);

}  // namespace strata::runtime
