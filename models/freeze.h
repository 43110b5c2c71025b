#pragma once
#include <span>
#include <string>
#include <string_view>

namespace strata::models {

// Whether one of the patterns is of this tensor: globs of whole names, in which * stands for any characters, ? for one
// and [...] for one of these.
bool is_frozen_by(std::span<const std::string> patterns, std::string_view name);

}  // namespace strata::models
