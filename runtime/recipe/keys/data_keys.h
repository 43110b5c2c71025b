#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What is trained, and on which data.
std::vector<RecipeKey> model_keys();
std::vector<RecipeKey> data_keys();

}  // namespace strata::runtime
