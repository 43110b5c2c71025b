#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// Where state lies, what computes, and what connects the ranks.
std::vector<RecipeKey> zero_keys();
std::vector<RecipeKey> memory_keys();
std::vector<RecipeKey> device_keys();
std::vector<RecipeKey> comm_keys();

}  // namespace strata::runtime
