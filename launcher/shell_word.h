#pragma once
#include <string>
#include <string_view>

namespace strata::launcher {

// A word as a shell reads it: whatever is in it, it stays one word and means itself.
std::string shell_word(std::string_view word);

}  // namespace strata::launcher
