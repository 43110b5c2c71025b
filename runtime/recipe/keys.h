#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// One key of the recipe: where it lies, what it may be, what it means. The table of all of them is the only place
// that knows; the loader, to_text() and docs/recipe.md read it.
struct RecipeKey {
  std::string name;     // "training.precision"
  std::string allowed;  // "\"fp32\", \"bf16\" or \"fp16\""
  std::string meaning;
  // Stores the value; relative paths are taken from `folder`. False where it is not what `allowed` says.
  std::function<bool(Recipe&, const RecipeValue&, const std::filesystem::path& folder)> set;
  // The value in canonical form; "none" where it is not set.
  std::function<std::string(const Recipe&)> text;
  // True for a value that is allowed but that nothing can run yet.
  std::function<bool(const RecipeValue&)> not_built;
};

// All keys but model.config.*, in the order of the documentation.
std::span<const RecipeKey> recipe_keys();
// The known key that is the fewest edits away.
const RecipeKey& nearest_key(std::string_view name);
// Keys whose names have `part` in them, as text; throws Error{usage} where there is none.
std::string keys_about(std::string_view part);
// docs/recipe.md.
std::string recipe_reference();
}  // namespace strata::runtime
