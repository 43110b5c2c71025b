#pragma once
// runtime/recipe/keys/ defines the keys of a recipe: a row per key, a file per group of sections. ../keys.h is the
// table of all of them.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// A key of the recipe: where it is stored, which values are allowed, and what it means. This table is the only
// definition; the loader, to_text() and docs/recipe.md read it.
struct RecipeKey {
  std::string name;     // "training.precision"
  std::string allowed;  // "\"fp32\", \"bf16\" or \"fp16\""
  std::string meaning;
  // Stores the value, with relative paths resolved from `folder`. False if the value does not satisfy `allowed`.
  std::function<bool(Recipe&, const RecipeValue&, const std::filesystem::path& folder)> set;
  // The value in canonical form; "none" if it is not set.
  std::function<std::string(const Recipe&)> text;
  // The maximum of a number or size, if it is far beyond any sensible value and `allowed` therefore does not mention
  // it.
  struct Most {
    double value = 0;
    std::string text;
  };
  std::optional<Most> most = {};
};

}  // namespace strata::runtime
