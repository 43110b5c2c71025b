#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What is trained, and how a step updates the parameters.
std::vector<RecipeKey> training_keys();
std::vector<RecipeKey> optimizer_keys();
std::vector<RecipeKey> scheduler_keys();
std::vector<RecipeKey> fp16_keys();

}  // namespace strata::runtime
