#include "text/unicode/utf8.h"

#include <simdjson.h>

namespace strata::text {
namespace {

// The length of the longest valid prefix of a character at text[0], at least 1. `whole`: the character is complete.
std::size_t longest_part(std::string_view text, bool& whole) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  whole = first < 0x80;
  if (first < 0xc2 || first > 0xf4) return 1;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and everything above U+10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  std::size_t n = 1;
  while (n < length && n < text.size() && byte(n) >= (n == 1 ? low : 0x80) && byte(n) <= (n == 1 ? high : 0xbf)) ++n;
  whole = n == length;
  return n;
}

}  // namespace

void append_character(char32_t code, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

void append_repaired(std::string_view text, std::string& out) {
  out.reserve(out.size() + text.size());
  while (!text.empty()) {
    bool whole = false;
    const std::size_t n = longest_part(text, whole);
    if (whole) {
      out += text.substr(0, n);
    } else {
      out += "\xef\xbf\xbd";
    }
    text.remove_prefix(n);
  }
}

}  // namespace strata::text
