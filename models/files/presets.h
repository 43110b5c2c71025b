#pragma once
#include <span>
#include <string>
#include <string_view>

namespace strata::models {

// The names that `model.preset` accepts.
std::span<const std::string_view> preset_names();
// A preset's complete config.json. For an unknown name, throws an Error{usage} that lists the names.
std::string preset_config(std::string_view name);

}  // namespace strata::models
