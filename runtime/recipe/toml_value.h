#pragma once
#include <optional>
#include <string>

#include "runtime/recipe/toml_file.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// A value as errors show it, 200 characters at most.
std::string shown(const toml::node& node);
// The value free of TOML; nullopt for dates and times, which no key takes.
std::optional<RecipeValue> value_of(const toml::node& node);
// As JSON, for model.config; throws Error{usage} naming the key if JSON has no such value.
std::string json_of(const toml::node& node, const std::string& key);

}  // namespace strata::runtime
