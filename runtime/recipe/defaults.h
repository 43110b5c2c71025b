#pragma once
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The values of keys that a recipe does not give. A default that depends on another key (model.init on model.path,
// optimizer.betas on optimizer.name) uses that key's value in `recipe`.
Recipe defaults_for(const Recipe& recipe);

}  // namespace strata::runtime
