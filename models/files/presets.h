#pragma once
#include <span>
#include <string>
#include <string_view>

namespace strata::models {

// The names that `model.preset` takes.
std::span<const std::string_view> preset_names();
// A preset's whole config.json. Throws Error{usage} listing the names if there is none of this name.
std::string preset_config(std::string_view name);

}  // namespace strata::models
