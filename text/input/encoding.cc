#include "text/input/encoding.h"

#include <simdjson.h>

#include <algorithm>
#include <array>

#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

std::size_t width_of(Encoding encoding) {
  if (encoding == Encoding::utf8) return 1;
  return encoding == Encoding::utf16_little || encoding == Encoding::utf16_big ? 2 : 4;
}

std::uint32_t unit_at(Encoding encoding, std::string_view in, std::size_t at) {
  const std::size_t width = width_of(encoding);
  const bool little = encoding == Encoding::utf16_little || encoding == Encoding::utf32_little;
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < width; ++i)
    out = out << 8 | static_cast<unsigned char>(in[at + (little ? width - 1 - i : i)]);
  return out;
}

// The start of the last character if `text` may contain only part of it, otherwise the end.
std::size_t end_of_whole(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80) continue;
    return character_length(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::uint64_t wrong_bytes(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text[at]);
    if (length <= text.size() - at && is_valid_utf8(text.substr(at, length))) {
      at += length;
    } else {
      ++wrong;
      ++at;
    }
  }
  return wrong;
}

}  // namespace

std::string_view name_of(Encoding encoding) {
  static constexpr std::array<std::string_view, 5> kNames = {"UTF-8", "UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"};
  return kNames[static_cast<std::size_t>(encoding)];
}

Mark byte_order_mark(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\xff\xfe\0\0"sv)) return {Encoding::utf32_little, 4};  // UTF-16 begins alike
  if (head.starts_with("\0\0\xfe\xff"sv)) return {Encoding::utf32_big, 4};
  if (head.starts_with("\xff\xfe"sv)) return {Encoding::utf16_little, 2};
  if (head.starts_with("\xfe\xff"sv)) return {Encoding::utf16_big, 2};
  if (head.starts_with("\xef\xbb\xbf"sv)) return {Encoding::utf8, 3};
  return {};
}

Encoding guess_of_zeros(std::string_view head) {
  std::array<std::size_t, 4> zeros{};
  const std::size_t quarters = head.size() / 4;
  for (std::size_t i = 0; i < 4 * quarters; ++i) zeros[i % 4] += head[i] == '\0';
  const auto most = [&](std::size_t place) { return 10 * zeros[place] >= 7 * quarters; };
  const auto few = [&](std::size_t place) { return 10 * zeros[place] <= quarters; };
  if (quarters == 0) return Encoding::utf8;
  if (few(0) && most(1) && most(2) && most(3)) return Encoding::utf32_little;
  if (most(0) && most(1) && most(2) && few(3)) return Encoding::utf32_big;
  if (few(0) && most(1) && few(2) && most(3)) return Encoding::utf16_little;
  if (most(0) && few(1) && most(2) && few(3)) return Encoding::utf16_big;
  return Encoding::utf8;
}

bool decode(Encoding encoding, std::string_view& in, bool last, std::string& out) {
  const std::size_t width = width_of(encoding);
  std::size_t at = 0;
  bool good = true;
  while (at + width <= in.size()) {
    std::uint32_t code = unit_at(encoding, in, at);
    std::size_t size = width;
    if (width == 2 && code >= 0xd800 && code < 0xdc00) {
      if (at + 4 > in.size()) break;
      const std::uint32_t low = unit_at(encoding, in, at + 2);
      good = low >= 0xdc00 && low < 0xe000;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      size = 4;
    } else {
      good = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    }
    if (!good) break;
    append_character(static_cast<char32_t>(code), out);
    at += size;
  }
  in.remove_prefix(at);
  return good && (!last || in.empty());
}

void Utf8Count::add(std::string_view piece) {
  bytes_ += piece.size();
  if (!held_.empty()) {
    // Add as many bytes of the piece as a character may need.
    const std::size_t size = held_.size(), most = std::min<std::size_t>(piece.size(), 3);
    held_ += piece.substr(0, most);
    std::size_t at = 0;
    while (at < size) {
      const std::size_t length = character_length(held_[at]);
      if (length > held_.size() - at && piece.size() == most) {  // more bytes may complete it
        held_.erase(0, at);
        return;
      }
      const bool whole = is_valid_utf8(std::string_view(held_).substr(at, length));
      wrong_ += whole ? 0 : 1;
      at += whole ? length : 1;
    }
    held_.clear();
    piece.remove_prefix(at - size);
  }
  const std::size_t end = end_of_whole(piece);
  wrong_ += wrong_bytes(piece.substr(0, end));
  held_ = piece.substr(end);
}

void Utf8Count::finish() {
  wrong_ += wrong_bytes(held_);
  held_.clear();
}

}  // namespace strata::text
