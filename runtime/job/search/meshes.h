#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/job/search/candidate.h"

namespace strata::runtime {

// How a mesh divides a model: parallel.tensor ranks share each layer, in parallel.stages pipeline stages.
struct Degrees {
  int tensor, stages;
};

// The other degrees that a search tries on these ranks, in this order: more stages, which keep the bits; more ranks per
// layer, in powers of two; more ranks per layer with another number of stages, smallest replicas first. None for one
// rank. `units`: the model's, which bound the stages.
std::vector<Degrees> degrees_to_try(const Recipe::Parallel& parallel, int ranks, std::size_t units);

// Whether a step on another mesh keeps its sequences, so that fewer data ranks take more micro-batches each, or each
// data rank keeps its micro-batches, so that the step has fewer sequences.
enum class StepBatch : std::uint8_t { same, smaller };

// A job's recipe on another mesh of its ranks, the changes that lead there, and the layout of the state.
struct OtherMesh {
  Workload workload;
  Changes changes;
  Layout layout;
};
// nullopt if the model, the batch or another key excludes these degrees, or if they do not make a smaller batch.
std::optional<OtherMesh> mesh_with(const Job& job, Degrees degrees, StepBatch batch);

}  // namespace strata::runtime
