#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What is trained beside a frozen model.
std::vector<RecipeKey> adapter_keys();

}  // namespace strata::runtime
