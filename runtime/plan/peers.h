#pragma once
#include "comm/group.h"
#include "runtime/plan/task_kind.h"

namespace strata::runtime {

struct StepPlan;

// The group that `rank` is in, in the order of its members' pieces. A group of one exchanges nothing, so all ranks in
// their order stand in for it.
comm::Group group_of(const StepPlan& plan, Peers peers, int rank);

}  // namespace strata::runtime
