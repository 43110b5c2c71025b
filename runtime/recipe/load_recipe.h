#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The recipe of `path` (TOML; none: every key is at its default) with `sets` ("a.b=value") applied in order. Throws
// Error{usage} naming the key, the value and what is allowed, or both keys that contradict each other.
Recipe load_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets);

}  // namespace strata::runtime
