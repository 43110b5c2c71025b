#pragma once
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Fills in the waits of every task. The plan must have offsets. The rule is in waits.cc.
void derive_waits(StepPlan& plan);

}  // namespace strata::runtime
