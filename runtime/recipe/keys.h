#pragma once
#include <span>
#include <string>
#include <string_view>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// All keys but model.config.*, in the order of the documentation.
std::span<const RecipeKey> recipe_keys();
// The known key that is the fewest edits away.
const RecipeKey& nearest_key(std::string_view name);
// Keys and names of other programs that have `part` in them, as text; throws Error{usage} if there is none.
std::string keys_about(std::string_view part);
// docs/recipe.md.
std::string recipe_reference();

}  // namespace strata::runtime
