#include "text/unicode/byte_level.h"

#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) out[byte] = stands_for_itself(byte) ? byte : next++;
  return out;
}

constexpr std::array<std::int16_t, 0x144> character_bytes() {
  std::array<std::int16_t, 0x144> out{};
  for (auto& byte : out) byte = -1;
  constexpr auto characters = byte_characters();
  for (unsigned byte = 0; byte < 256; ++byte) out[characters[byte]] = static_cast<std::int16_t>(byte);
  return out;
}

constexpr auto kCharacterBytes = character_bytes();

}  // namespace

constinit const std::array<char32_t, 256> kByteCharacters = byte_characters();

std::optional<std::uint8_t> byte_of(char32_t character) {
  if (character >= kCharacterBytes.size() || kCharacterBytes[character] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kCharacterBytes[character]);
}

void append_byte_characters(std::string_view text, std::string& out) {
  for (const char c : text) append_character(kByteCharacters[static_cast<unsigned char>(c)], out);
}

std::optional<std::string> bytes_of(std::string_view characters) {
  std::string out;
  for (std::size_t at = 0; at < characters.size();) {
    const auto [code, bytes] = character_at(characters, at);
    const auto byte = byte_of(code);
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    at += bytes;
  }
  return out;
}

}  // namespace strata::text
