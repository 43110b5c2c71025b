#include "text/template/values/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

// The upper case of U+FB00 to U+FB06.
constexpr char32_t kFirstLigature = 0xfb00;
constexpr std::array<std::string_view, 7> kLigatures = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};

template <typename Use>
void each_character(std::string_view text, Use use) {
  for (std::size_t at = 0; at < text.size(); at += character_length(text[at])) use(character_at(text, at).code);
}

template <typename Change>
std::string map_characters(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](char32_t code) { append_character(change(code), out); });
  return out;
}

char32_t to_upper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_title(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
}
utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
bool is_cased(char32_t code) {
  const auto category = category_of(code);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

// utf8proc numbers the categories of separators (Z*) and of other characters (C*) last, except for unassigned ones
// (CN).
bool is_printable(char32_t code) {
  const auto category = category_of(code);
  return code == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

bool ends_line(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

}  // namespace

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

std::size_t byte_of(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  for (; character > 0 && at < text.size(); --character) at += character_length(text[at]);
  return at;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size(); at += out.back().size())
    out.push_back(text.substr(at, character_length(text[at])));
  return out;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  const auto goes = [&](std::size_t at) {
    return characters ? characters->find(text.substr(at, character_length(text[at]))) != std::string_view::npos
                      : is_space(character_at(text, at).code);
  };
  if (side != Side::right)
    while (!text.empty() && goes(0)) text.remove_prefix(character_length(text[0]));
  if (side != Side::left) {
    while (!text.empty()) {
      const std::size_t last = last_character(text).bytes;
      if (!goes(text.size() - last)) break;
      text.remove_suffix(last);
    }
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most,
                                    bool from_right) {
  std::vector<std::string_view> out;
  for (std::int64_t cuts = 0; most < 0 || cuts < most; ++cuts) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view left = text.substr(0, at), right = text.substr(at + separator.size());
    out.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> words(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> out;
  for (text = strip(text, Side::left); !text.empty(); text = strip(text, Side::left)) {
    if (most >= 0 && static_cast<std::int64_t>(out.size()) == most) {
      out.push_back(strip(text, Side::right));
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(character_at(text, end).code)) end += character_length(text[end]);
    out.push_back(text.substr(0, end));
    text = text.substr(end);
  }
  return out;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    at += character_length(text[at]);
    if (!ends_line(character_at(text, end).code)) continue;
    if (text[end] == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    if (old.empty()) {  // insert between all characters, and at both ends
      out += by;
      if (at == text.size()) return out;
      const std::size_t size = character_length(text[at]);
      out += text.substr(at, size);
      at += size;
      continue;
    }
    const std::size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += by;
    at = found + old.size();
  }
  out += text.substr(at);
  return out;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](char32_t code) {
    const std::size_t ligature = code - kFirstLigature;
    if (code == U'\u00df')
      out += "SS";
    else if (code >= kFirstLigature && ligature < kLigatures.size())
      out += kLigatures[ligature];
    else
      append_character(to_upper(code), out);
  });
  return out;
}
std::string lower(std::string_view text) {
  return map_characters(text, to_lower);
}
std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text,
                        [&](char32_t code) { return std::exchange(first, false) ? to_title(code) : to_lower(code); });
}
std::string title(std::string_view text) {
  bool inside = false;
  return map_characters(text, [&](char32_t code) {
    const char32_t out = inside ? to_lower(code) : to_title(code);
    inside = is_cased(code);
    return out;
  });
}

std::string repr_of(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size(); at += character_length(text[at])) {
    const char32_t code = character_at(text, at).code;
    const auto number = static_cast<std::uint32_t>(code);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (is_printable(code)) {
      out += text.substr(at, character_length(text[at]));
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", number);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\U{:08x}", number);
    }
  }
  out += quote;
  return out;
}

std::string repr_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string out = fmt::format("{}", number);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string escape(std::string_view text) {
  constexpr std::string_view kMarks = "&<>'\"";
  constexpr std::array<std::string_view, 5> kEntities = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char& c : text) {
    const std::size_t mark = kMarks.find(c);
    out += mark < kMarks.size() ? kEntities[mark] : std::string_view(&c, 1);
  }
  return out;
}

}  // namespace strata::text::jinja
