#pragma once
#include <span>
#include <string>
#include <string_view>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// All keys but model.config.*, in the order of the documentation.
std::span<const RecipeKey> recipe_keys();
// The known key that `name` is a mistyped form of: few edits away, in whatever section; null if none is.
const RecipeKey* similar_key(std::string_view name);
// As text: keys and names of other programs that have `part` in them, else keys that take it as a value or whose
// meaning has it. All keys if `part` is empty. Throws Error{usage} if there is none.
std::string keys_about(std::string_view part);
// docs/recipe.md.
std::string recipe_reference();

}  // namespace strata::runtime
