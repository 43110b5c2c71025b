#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The end of the first line of an error that lists several unknown keys, one per line.
inline constexpr std::string_view kBeforeUnknownKeys = " unknown keys (strata keys lists all):\n";

// A recipe, and what was noticed while it was read.
struct LoadedRecipe {
  Recipe recipe;
  std::vector<std::string> notes = {};  // sentences about keys that were given but have no effect on training
  std::optional<std::filesystem::path> replaced_adapter = {};  // what adapter.path was before it was given again
};

// Loads the recipe at `path` (TOML; without a path every key has its default) and applies `sets` ("a.b=value") in
// order. Throws Error{usage} naming the key, its value and what is allowed, two keys that contradict each other, or all
// unknown keys.
LoadedRecipe load_with_notes(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets);
Recipe load_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets);

// A default recipe with the keys in `names` set as a checkpoint's manifest stores them (RecipeKey::text); keys that the
// manifest lacks keep their defaults. Contradictions between keys are not checked. Throws Error{usage} for a value that
// its key does not allow.
Recipe stored_keys(const std::map<std::string, std::string>& stored, std::span<const std::string_view> names);

// Every key that must be equal on all ranks, with its value, in a fixed order. report.*, control.* and device.threads
// are left out; the weights of several sources have a separate key.
std::vector<std::pair<std::string, std::string>> values_of(const Recipe& recipe);
// values_of(), one "key = value" per line. Ranks compare its hash before step 1.
std::string to_text(const Recipe& recipe);

// The recipe with absolute paths, which name the same files wherever a later program is started. Paths of report.* stay
// as they are.
Recipe with_absolute_paths(Recipe recipe);
// The recipe as a file for load_recipe: keys that differ from their defaults, absolute paths, without report.*.
std::string to_toml(const Recipe& recipe);

}  // namespace strata::runtime
