#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace strata {

// Quotes a word for a shell: whatever it contains, it stays one word and means itself. A word that needs no quotes gets
// none. Control characters, which no screen shows, are written by printf.
std::string shell_word(std::string_view word);

// A command line that runs `code` in Python with `arguments` as argv[1] and so on: a path inside the code would need
// the quotes of two languages. The code contains no double quotes, dollars, backticks or backslashes.
std::string python_command(std::string_view code, std::initializer_list<std::string_view> arguments);

}  // namespace strata
