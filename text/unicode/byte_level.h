#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::text {

// GPT-2's alphabet: each byte as a visible character, so that any bytes are a text of its own.
// Byte -> character: printable Latin-1 stands for itself, the others follow from U+0100 on.
extern const std::array<char32_t, 256> kByteCharacters;
// nullopt if the character stands for no byte.
std::optional<std::uint8_t> byte_of(char32_t character);

// Bytes of `text` as characters, appended to `out`; and back, nullopt if a character stands for no byte.
void append_byte_characters(std::string_view text, std::string& out);
std::optional<std::string> bytes_of(std::string_view characters);

}  // namespace strata::text
