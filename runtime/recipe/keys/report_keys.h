#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// What a run writes about itself.
std::vector<RecipeKey> report_keys();

}  // namespace strata::runtime
