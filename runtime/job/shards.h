#pragma once
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} for keys of the recipe that parallel.tensor_shards above 1 does not support in this version.
void require_shards(const Recipe& recipe);

}  // namespace strata::runtime
