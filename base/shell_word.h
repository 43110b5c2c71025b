#pragma once
#include <string>
#include <string_view>

namespace strata {

// A word as a shell reads it: whatever is in it, it stays one word and means itself. What needs no quotes gets
// none, and control characters, which no screen shows as they are, are written by printf.
std::string shell_word(std::string_view word);

}  // namespace strata
