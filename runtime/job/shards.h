#pragma once
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if `ranks` ranks cannot share the recipe's model as parallel.* says, and for keys that
// parallel.tensor_shards above 1 does not support in this version.
void require_mesh(const Recipe& recipe, int ranks);

}  // namespace strata::runtime
