#pragma once
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Fills in what each task waits for, of a plan with offsets: see waits.cc for the rule.
void derive_waits(StepPlan& plan);

}  // namespace strata::runtime
