#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// How a run is observed and controlled from outside.
std::vector<RecipeKey> control_keys();

}  // namespace strata::runtime
