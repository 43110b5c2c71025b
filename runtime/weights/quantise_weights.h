#pragma once
#include <cstddef>
#include <vector>

#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The offsets of all that the plan quantises with scales of 8 bits; of what is read as it is, 0. Collective: where
// parameters are sharded, each rank reads its shards. Without a world this rank reads everything.
ScaleOffsets scale_offsets(const StepPlan& plan, const WeightSource& source, int threads, comm::World& world);
ScaleOffsets scale_offsets(const StepPlan& plan, const WeightSource& source, int threads);

// Elements of a unit's quantised pool, whole blocks that this rank holds: reads them, quantises them unless they are
// already, and stores them. offsets: by run. Thread-safe for elements that do not overlap.
void quantise_weights(Executor& executor, const StepPlan& plan, const WeightSource& source,
                      const std::vector<float>& offsets, std::size_t unit, const models::ElementRange& elements,
                      const LoadOptions& options = {});

}  // namespace strata::runtime
