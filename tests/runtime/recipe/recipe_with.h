#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {

// A recipe for a small model with these --set assignments.
inline Recipe recipe_with(std::vector<std::string> sets) {
  sets.insert(sets.begin(), "model.preset=tiny-gpt2");
  return load_recipe(std::nullopt, sets);
}
// What is noted about it.
inline std::vector<std::string> notes_with(std::vector<std::string> sets) {
  sets.insert(sets.begin(), "model.preset=tiny-gpt2");
  return load_with_notes(std::nullopt, sets).notes;
}

}  // namespace strata::runtime
