#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "models/model.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if `ranks` ranks cannot share the recipe's model as parallel.* says, and for keys that
// parallel.tensor_shards above 1 does not support in this version.
void require_mesh(const Recipe& recipe, int ranks);

// Throws Error{usage} for a pipeline schedule that the training cannot have, and for settings that exclude pipeline
// stages.
void require_stages(const Recipe& recipe, int ranks);

// Whether the pipeline's schedule accepts this many micro-batches per rank and step: with several chunks, a multiple of
// the stages.
bool takes_micro_batches(const Recipe::Parallel& parallel, std::int64_t micro_batches);

// Throws Error{usage} if the ranks that share each layer cannot divide the rows of a micro-batch (parallel.sequence).
void require_divisible_rows(const Recipe& recipe, const models::Model& model);

// Says how many virtual shards there are, and which values of parallel.tensor keep the bits.
std::string note_of_shards(std::size_t shards);

}  // namespace strata::runtime
