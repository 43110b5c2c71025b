#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What a run saves of itself, and how it is evaluated during training.
std::vector<RecipeKey> checkpoint_keys();
std::vector<RecipeKey> evaluation_keys();

}  // namespace strata::runtime
