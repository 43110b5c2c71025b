#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// How the model is split over ranks.
std::vector<RecipeKey> parallel_keys();

}  // namespace strata::runtime
