#include "text/split/word_boundary.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

bool is_letter(char32_t code, bool ascii) {
  if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z')) return true;
  if (ascii || code < 0x80) return false;
  return (code >= 0x430 && code <= 0x44f && code != 0x439) || (code >= 0x627 && code <= 0x63a) ||
         (code >= 0x641 && code <= 0x64a) || (code >= 0x3042 && code <= 0x3093) || (code >= 0x30a2 && code <= 0x30f3) ||
         (code >= 0x4e00 && code <= 0x9fa5);
}

// The length of the character at the start of `text`; 0 if it is incomplete or invalid.
std::size_t valid_character(std::string_view text) {
  const std::size_t n = character_length(text[0]);
  return n <= text.size() && is_valid_utf8(text.substr(0, n)) ? n : 0;
}

}  // namespace

std::size_t last_word_boundary(std::string_view text, std::size_t limit, std::string_view separators, bool ascii) {
  for (std::size_t at = std::min(limit, text.size()); at-- > 1;) {
    if (separators.find(text[at]) == std::string_view::npos || at + 1 >= text.size()) continue;
    std::size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    const std::string_view before = text.substr(begin, at - begin), after = text.substr(at + 1, 4);
    if (valid_character(before) != before.size() || valid_character(after) == 0) continue;
    if (is_letter(character_at(before, 0).code, ascii) && is_letter(character_at(after, 0).code, ascii)) return at;
  }
  return 0;
}

bool reaches_over(std::string_view token, std::string_view mark) {
  for (std::size_t at = token.find(mark); at != std::string_view::npos; at = token.find(mark, at + mark.size()))
    if (at > 0 && !token.substr(0, at).ends_with(mark)) return true;
  return false;
}

bool words_stay_apart(const Vocabulary& vocabulary, std::string_view mark) {
  if (!vocabulary.find(mark)) return false;
  bool apart = true;
  vocabulary.for_each([&](std::string_view token, std::uint32_t) { apart = apart && !reaches_over(token, mark); });
  return apart;
}

}  // namespace strata::text
