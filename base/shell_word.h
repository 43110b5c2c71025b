#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace strata {

// A word as a shell reads it: whatever is in it, it stays one word and means itself. What needs no quotes gets
// none, and control characters, which no screen shows as they are, are written by printf.
std::string shell_word(std::string_view word);

// A command line that runs `code` in Python, which finds `arguments` as argv[1] and so on: a path in the code itself
// would need quotes of two languages. The code has no double quotes, dollars, backticks and backslashes.
std::string python_command(std::string_view code, std::initializer_list<std::string_view> arguments);

}  // namespace strata
