#pragma once
#include <span>
#include <string>
#include <string_view>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// All keys except model.config.*, in the order of the documentation.
std::span<const RecipeKey> recipe_keys();
// Null if there is no key with this full name.
const RecipeKey* find_key(std::string_view name);
// The only key, in any section, that has this name in its section; null if there is none, or several.
const RecipeKey* key_in_any_section(std::string_view name);
// The known key, in any section, that `name` is a typo of (few edits away); null if there is none.
const RecipeKey* similar_key(std::string_view name);
// Text about the keys and other programs' names that contain `part`, and the keys that have it among their values or in
// their meaning. Names equal to `part` come first, then names that contain it as a word. All keys if `part` is empty.
// Throws Error{usage} if nothing is found.
std::string keys_about(std::string_view part);
// docs/recipe.md.
std::string recipe_reference();

}  // namespace strata::runtime
