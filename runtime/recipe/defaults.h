#pragma once
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What keys are that a recipe does not give. Of those whose default hangs on other keys (model.init on model.path,
// optimizer.betas on optimizer.name) what `recipe` gives there counts.
Recipe defaults_for(const Recipe& recipe);

}  // namespace strata::runtime
