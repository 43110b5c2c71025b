#pragma once
#include <string>

#include "base/advance.h"
#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Hash of the fp32 master weights, 32 hex digits: the sum over blocks of kShardAlignment, at fixed places of each unit,
// of XXH3-128 of their bytes seeded by the place; so it does not depend on shards. With an adapter, of what is trained,
// as it lies. Collective.
std::string weights_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});
// The same sum over what is frozen, of the bytes in which it is stored: those of an adapter's base. Collective.
std::string base_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});

}  // namespace strata::runtime
