#include "text/unicode/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "text/unicode/unicode_versions.h"

namespace strata::text {
namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
bool between(utf8proc_category_t c, utf8proc_category_t first, utf8proc_category_t last) {
  return c >= first && c <= last;
}

template <std::size_t n>
bool is_in(char32_t code, const CharacterRange (&ranges)[n]) {
  const auto* range = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                       [](char32_t c, const CharacterRange& r) { return c < r.first; });
  return range != std::begin(ranges) && code <= range[-1].last;
}

}  // namespace

bool is_whitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return between(category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  return (between(category(code), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) && !is_in(code, kLaterPunctuation)) ||
         code == 0x166d || code == 0x111c9;  // no longer punctuation
}

bool is_word(char32_t code) {
  if (code < 0x80) {
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') || code == '_';
  }
  const auto later = std::find_if(std::begin(kLaterCharacters), std::end(kLaterCharacters),
                                  [&](const LaterRange& range) { return code >= range.first && code <= range.last; });
  if (later != std::end(kLaterCharacters)) {
    const std::string_view its = later->category;
    return its[0] == 'L' || its[0] == 'M' || its == "Nd" || its == "Nl" || its == "Pc";
  }
  const auto c = category(code);
  return between(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC || code == 0x200c ||
         code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

bool is_other(char32_t code) {
  if (code < 0x80) return code < ' ' || code == 0x7f;
  if (code == 0x8e2 || (code >= 0x890 && code <= 0x891) || code == 0x110cd || (code >= 0x13430 && code <= 0x1343f)) {
    return false;  // controls only after Unicode 8
  }
  return between(category(code), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

bool is_mark(char32_t code) {
  if (code < 0x300) return false;
  return (between(category(code), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) && !is_in(code, kLaterMarks)) ||
         (code >= 0x1cf2 && code <= 0x1cf3);  // no longer marks
}

bool is_nonspacing_mark(char32_t code) {
  if (code < 0x300) return false;
  return (category(code) == UTF8PROC_CATEGORY_MN && !is_in(code, kLaterNonspacingMarks)) || code == 0x1734 ||
         code == 0x1171e;
}

bool is_chinese(char32_t code) {
  static constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                 {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](auto range) { return code >= range.first && code <= range.last; });
}

}  // namespace strata::text
