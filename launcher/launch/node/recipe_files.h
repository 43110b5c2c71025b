#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A path or glob that every rank reads, and the name for it in messages: a key, or "the recipe".
struct RecipeFile {
  std::string key, pattern;

  bool operator==(const RecipeFile&) const = default;
};

// Converts them to one line of JSON, and back. A text that is something else gives an empty list.
std::string to_json(std::span<const RecipeFile> files);
std::vector<RecipeFile> parse_recipe_files(std::string_view json);

// One sentence for each file that this machine does not see or may not read.
std::vector<std::string> unseen_here(std::span<const RecipeFile> files);

}  // namespace strata::launcher
