#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The recipe of `path` (TOML; none: every key is at its default) with `sets` ("a.b=value") applied in order. Throws
// Error{usage} naming the key, the value and what is allowed, or both keys that contradict each other.
Recipe load_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets);

// A default recipe with the keys of `names` as a checkpoint's manifest stores them (RecipeKey::text); a key that it
// does not store stays at its default. Whether keys go together is not asked. Throws Error{usage} for a value that its
// key does not allow.
Recipe stored_keys(const std::map<std::string, std::string>& stored, std::span<const std::string_view> names);

}  // namespace strata::runtime
