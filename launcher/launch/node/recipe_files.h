#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A path or glob that every rank reads, and what names it: a key, or "the recipe".
struct RecipeFile {
  std::string key, pattern;

  bool operator==(const RecipeFile&) const = default;
};

// As one line of JSON, and back; nothing of a text that is none of ours.
std::string to_json(std::span<const RecipeFile> files);
std::vector<RecipeFile> parse_recipe_files(std::string_view json);

// A sentence per file that this machine does not see, or may not look at.
std::vector<std::string> unseen_here(std::span<const RecipeFile> files);

}  // namespace strata::launcher
