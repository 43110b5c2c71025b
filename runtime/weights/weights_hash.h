#pragma once
#include <string>

#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Hash of the fp32 master weights in 32 hexadecimal digits: the sum, over blocks of kShardAlignment at fixed places of
// each unit, of XXH3-128 of their bytes seeded by the place. It does not depend on sharding. With an adapter it covers
// the trained weights in their own layout. Collective.
std::string weights_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});
// The same sum over the stored bytes of frozen weights, i.e. of an adapter's base. Collective.
std::string base_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});

}  // namespace strata::runtime
