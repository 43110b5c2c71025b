#pragma once
#include <cstddef>

#include "models/model.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What parallel.tensor_shards above 1 does not support yet. Both throw Error{usage}: for the recipe's other keys,
// before the model is made, and for a model of which no block is computed in shards.
void require_shards(const Recipe& recipe);
void require_in_shards(const models::Model& model, std::size_t shards);

}  // namespace strata::runtime
