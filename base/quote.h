#pragma once
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace strata {

// Quotations in messages: the beginning of a long text, and words that a user can paste into a shell.

// At most the first `bytes` bytes of a UTF-8 text. A character that does not fit completely is left out.
inline std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// The text for a message: at most `bytes` bytes, and "..." if there are more.
inline std::string excerpt(std::string_view text, std::size_t bytes) {
  return std::string(beginning_of(text, bytes)) + (text.size() > bytes ? "..." : "");
}

// Quotes a word for a shell, which then reads it as one literal word, whatever it contains. A word that needs no quotes
// gets none. Control characters, which a screen does not show, are written with printf.
std::string shell_word(std::string_view word);

// A command line that runs `code` in Python with `arguments` as argv[1] and so on, because a path inside the code would
// need the quoting of two languages. The code must not contain double quotes, dollars, backticks or backslashes.
std::string python_command(std::string_view code, std::initializer_list<std::string_view> arguments);

}  // namespace strata
