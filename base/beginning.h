#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

// At most the first `bytes` bytes of a text in UTF-8: a character that does not fit is left out, not cut.
inline std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// The text for a message: at most `bytes` bytes, and "..." if there are more.
inline std::string excerpt(std::string_view text, std::size_t bytes) {
  return std::string(beginning_of(text, bytes)) + (text.size() > bytes ? "..." : "");
}

}  // namespace strata
