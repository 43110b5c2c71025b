#pragma once
#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// The step as tasks, with waits, offsets, predicted memory and bytes. Milliseconds; touches no device.
StepPlan make_plan(const PlanRequest& request);

}  // namespace strata::runtime
