#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What a run keeps of itself, and how it is evaluated on the way.
std::vector<RecipeKey> checkpoint_keys();
std::vector<RecipeKey> evaluation_keys();

}  // namespace strata::runtime
