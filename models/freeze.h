#pragma once
#include <span>
#include <string>
#include <string_view>

namespace strata::models {

// Whether one of the patterns matches the tensor's complete name: globs in which * stands for any characters, ? for one
// character and [...] for one of those listed.
bool is_frozen_by(std::span<const std::string> patterns, std::string_view name);

}  // namespace strata::models
