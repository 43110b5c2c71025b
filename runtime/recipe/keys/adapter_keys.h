#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// The adapter that is trained on top of a frozen model.
std::vector<RecipeKey> adapter_keys();

}  // namespace strata::runtime
