#pragma once
#include <string>
#include <string_view>

namespace strata::launcher {

// A text for a terminal: with '?' for control characters, which names in files that others wrote may hold; line breaks
// and tabs stay.
std::string printable(std::string_view text);

// "strata: TEXT" on stderr.
void note(std::string_view text);

}  // namespace strata::launcher
