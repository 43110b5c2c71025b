#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

// A character and its length in bytes.
struct Character {
  char32_t code;
  std::uint32_t bytes;
};

// The length in bytes of the character that begins with this byte; from 2 to 4 if it cannot begin one.
inline std::uint32_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The character at text[at]. The text must be valid UTF-8, and at < text.size().
inline Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

// The last character of a valid, non-empty text.
inline Character last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return character_at(text, at);
}

void append_character(char32_t code, std::string& out);
bool is_valid_utf8(std::string_view text);
// Appends `text` to `out`, with U+FFFD for invalid UTF-8: one for each maximal part of a character (Unicode 15, 3.9,
// U+FFFD Substitution of Maximal Subparts).
void append_repaired(std::string_view text, std::string& out);

}  // namespace strata::text
