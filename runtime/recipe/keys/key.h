#pragma once
// runtime/recipe/keys/ says what each key of the recipe is: a row per key, in a file per group of sections; ../keys.h
// is the table of all.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// One key of the recipe: where it lies, what it may be, what it means. The table of all of them is the only place
// that knows; the loader, to_text() and docs/recipe.md read it.
struct RecipeKey {
  std::string name;     // "training.precision"
  std::string allowed;  // "\"fp32\", \"bf16\" or \"fp16\""
  std::string meaning;
  // Stores the value; relative paths are taken from `folder`. False if it is not what `allowed` says.
  std::function<bool(Recipe&, const RecipeValue&, const std::filesystem::path& folder)> set;
  // The value in canonical form; "none" where it is not set.
  std::function<std::string(const Recipe&)> text;
  // True for a value that is allowed but that nothing can run yet.
  std::function<bool(const RecipeValue&)> not_built;
  // The most that a number or a size may be, if `allowed` leaves it out as no sensible one comes near.
  struct Most {
    double value = 0;
    std::string text;
  };
  std::optional<Most> most = {};
};

}  // namespace strata::runtime
