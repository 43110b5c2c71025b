#pragma once
#include <string>
#include <string_view>

namespace strata::models {

// Whether a regular expression of a user's file matches the whole text, like Python's re.fullmatch. Takes polynomial
// time in pattern and text: patterns may come from downloaded files. Throws std::regex_error.
bool matches_whole(const std::string& pattern, std::string_view text);

}  // namespace strata::models
