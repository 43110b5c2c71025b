#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The weights of a source as a run of `model` sees them: those in quantised pools are quantised and dequantised again.
// The model must outlive the result.
std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model);

// The offsets (mean scales) of all matrices that the plan quantises with 8-bit scales; 0 for matrices that the source
// has quantised. Collective: each rank reads its shards if parameters are sharded.
ScaleOffsets scale_offsets(const StepPlan& plan, const WeightSource& source, int threads, comm::World& world);

// Reads, quantises (unless the source is quantised) and stores `elements` of a unit's quantised pool, which must be
// complete blocks that this rank holds. `offsets`: by matrix. Thread-safe for elements that do not overlap.
void quantise_weights(Executor& executor, const StepPlan& plan, const WeightSource& source,
                      const std::vector<float>& offsets, std::size_t unit, const models::ElementRange& elements,
                      const LoadOptions& options = {});

}  // namespace strata::runtime
