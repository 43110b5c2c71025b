#pragma once
#include <cstddef>
#include <string>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if `ranks` ranks cannot share the recipe's model as parallel.* says, and for keys that
// parallel.tensor_shards above 1 does not support in this version.
void require_mesh(const Recipe& recipe, int ranks);

// Says how many virtual shards there are, and which values of parallel.tensor keep the bits.
std::string note_of_shards(std::size_t shards);

}  // namespace strata::runtime
