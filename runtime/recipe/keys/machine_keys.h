#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// Where state lies, and what computes and connects.
std::vector<RecipeKey> zero_keys();
std::vector<RecipeKey> memory_keys();
std::vector<RecipeKey> device_keys();
std::vector<RecipeKey> comm_keys();

}  // namespace strata::runtime
