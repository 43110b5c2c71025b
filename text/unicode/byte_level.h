#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::text {

// GPT-2's alphabet: every byte is mapped to a visible character, so that any sequence of bytes is a text. Bytes that
// are printable in Latin-1 are mapped to themselves, and the others to the characters from U+0100 on.
extern const std::array<char32_t, 256> kByteCharacters;
// nullopt if no byte is mapped to the character.
std::optional<std::uint8_t> byte_of(char32_t character);

// Appends the characters for the bytes of `text` to `out`. The reverse returns nullopt for other characters.
void append_byte_characters(std::string_view text, std::string& out);
std::optional<std::string> bytes_of(std::string_view characters);

}  // namespace strata::text
