#pragma once
#include <optional>
#include <string>

#include "runtime/recipe/toml_file.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// A value as errors show it, at most 200 characters.
std::string shown(const toml::node& node);
// The value without TOML types; nullopt for dates and times, which no key takes.
std::optional<RecipeValue> value_of(const toml::node& node);
// The value as JSON, for model.config. Throws Error{usage} naming the key if JSON has no such value.
std::string json_of(const toml::node& node, const std::string& key);

}  // namespace strata::runtime
