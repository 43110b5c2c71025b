#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::text {

// GPT-2's alphabet: every byte is a visible character, so that any bytes are a text. Byte -> character: printable
// Latin-1 stands for itself, and the others follow from U+0100 on.
extern const std::array<char32_t, 256> kByteCharacters;
// nullopt if the character stands for no byte.
std::optional<std::uint8_t> byte_of(char32_t character);

// The bytes of `text` as characters, appended to `out`; and the reverse, nullopt if a character stands for no byte.
void append_byte_characters(std::string_view text, std::string& out);
std::optional<std::string> bytes_of(std::string_view characters);

}  // namespace strata::text
