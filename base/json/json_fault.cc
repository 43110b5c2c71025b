#include "base/json/json_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

namespace strata {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool has_64_bits(std::string_view integer) {
  const char* const end = integer.data() + integer.size();
  std::int64_t with_sign = 0;
  std::uint64_t without = 0;
  return std::from_chars(integer.data(), end, with_sign).ec == std::errc() ||
         std::from_chars(integer.data(), end, without).ec == std::errc();
}

// The size of the UTF-8 character at the front of `text`, which is not empty; 0 if the bytes are not UTF-8.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) > 0x9f;
  return overlong || surrogate || (lead == 0xf4 && byte(1) > 0x8f) ? 0 : size;
}

// Checks a text against the grammar of RFC 8259, up to its first fault. Each step returns true if it found no fault.
class JsonWalker {
 public:
  JsonWalker(std::string_view text, std::size_t levels) : text_(text), levels_(levels) {}

  std::optional<JsonFault> run() {
    constexpr std::string_view kMark = "\xef\xbb\xbf";  // some parsers skip it
    if (text_.starts_with(kMark)) {
      doubt("a byte order mark at its start");
      at_ = kMark.size();
    }
    if (utf8() && value(0)) {
      skip_space();
      if (at_ < text_.size()) wrong(shown() + " after its end");
    }
    return std::move(fault_);
  }
  // The first part that is valid JSON but that a parser may still refuse.
  const std::optional<JsonFault>& doubtful() const { return doubtful_; }

 private:
  JsonFault here(std::string found) const {
    const auto lines = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return {static_cast<std::size_t>(lines) + 1, std::move(found)};
  }
  bool wrong(std::string found) {
    fault_ = here(std::move(found));
    return false;
  }
  void doubt(std::string found) {
    if (!doubtful_) doubtful_ = here(std::move(found));
  }
  bool at_end() const { return at_ >= text_.size(); }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  // The word or character at this place, as the user sees it in the file.
  std::string shown() const {
    constexpr std::size_t kMost = 20;
    const std::size_t end = std::min({text_.find_first_of(" \t\r\n,:{}[]\"", at_), at_ + kMost, text_.size()});
    const std::string_view word = text_.substr(at_, std::max<std::size_t>(end - at_, 1));
    if (std::any_of(word.begin(), word.end(), [](char c) { return c < 0x21 || c > 0x7e; }))
      return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(word[0]));
    return std::string(word);
  }

  bool utf8() {
    for (const std::size_t begin = at_; at_ < text_.size();) {
      const std::size_t size = character_size(text_.substr(at_));
      if (size == 0) return wrong("bytes that are not UTF-8");
      at_ += size;
      if (at_ == text_.size()) {
        at_ = begin;
        break;
      }
    }
    return true;
  }

  bool value(std::size_t level) {
    skip_space();
    if (at_end()) return wrong(level == 0 ? "nothing" : "an unclosed list or object");
    const char c = text_[at_];
    if (c == '{' || c == '[') {
      if (level >= levels_) return wrong(fmt::format("more than {} levels", levels_));
      return c == '{' ? object(level) : list(level);
    }
    if (c == '"') return string();
    if (c == '-' || is_digit(c)) return number();
    for (const std::string_view word : {"true", "false", "null"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return true;
      }
    return wrong(shown() + " in place of a value");
  }

  bool object(std::size_t level) {
    ++at_;
    skip_space();
    if (take('}')) return true;
    do {
      skip_space();
      if (at_end()) return wrong("an unclosed object");
      if (text_[at_] != '"') return wrong(shown() + " in place of a name in quotes");
      if (!string()) return false;
      skip_space();
      if (!at_end() && text_[at_] != ':') return wrong("a name without a colon after it");
      ++at_;
      if (at_ > text_.size()) return at_ = text_.size(), wrong("an unclosed object");
      if (!value(level + 1)) return false;
      skip_space();
    } while (take(','));
    if (take('}')) return true;
    return wrong(at_end() ? "an unclosed object" : shown() + " in place of a comma or }");
  }

  bool list(std::size_t level) {
    ++at_;
    skip_space();
    if (take(']')) return true;
    do {
      if (!value(level + 1)) return false;
      skip_space();
    } while (take(','));
    if (take(']')) return true;
    return wrong(at_end() ? "an unclosed list" : shown() + " in place of a comma or ]");
  }

  bool string() {
    const std::size_t begin = at_++;
    while (!at_end() && text_[at_] != '"') {
      if (const char c = text_[at_]; c == '\n' || c == '\r') break;  // usually because a quote was left out
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return wrong("a control character in a string");
      if (text_[at_] == '\\' && !escape()) return false;
      ++at_;
    }
    if (take('"')) return true;
    at_ = begin;
    return wrong("a string without its closing quote");
  }

  // Leaves at_ at the escape's last character.
  bool escape() {
    if (++at_ >= text_.size()) return true;  // the text ends inside the string
    if (text_[at_] == 'u') {
      const std::string_view digits = text_.substr(at_ + 1, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
        return wrong("\\u without four digits in a string");
      at_ += 4;
      code_unit(digits);
    } else if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
      return wrong(fmt::format("the escape \\{}, which JSON does not have, in a string", shown()));
    }
    return true;
  }

  // A character above U+FFFF is written as two escapes: a high and a low surrogate.
  void code_unit(std::string_view digits) {
    const auto is_one_of = [](std::string_view hex, std::string_view second) {
      return (hex[0] == 'd' || hex[0] == 'D') && second.find(hex[1]) != second.npos;
    };
    constexpr std::string_view kHigh = "89abAB", kLow = "cdefCDEF";
    const std::string_view next = text_.substr(at_ + 1, 6);
    const bool whole =
        is_one_of(digits, kHigh) && next.size() == 6 && next.starts_with("\\u") && is_one_of(next.substr(2), kLow);
    if (std::exchange(high_before_, whole)) return;  // the low half of a pair
    if (!whole && (is_one_of(digits, kHigh) || is_one_of(digits, kLow)))
      doubt(fmt::format("\\u{}, half of a character, in a string", digits));
  }

  bool number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      const std::size_t from = at_;
      while (!at_end() && is_digit(text_[at_])) ++at_;
      return at_ > from;
    };
    take('-');
    bool good = take('0') || digits();
    if (good && take('.')) good = digits();
    if (good && (take('e') || take('E'))) {
      if (!take('+')) take('-');
      good = digits();
    }
    if (good && !at_end() && std::string_view(" \t\r\n,]}").find(text_[at_]) == std::string_view::npos) good = false;
    const std::size_t end = std::exchange(at_, begin);
    if (!good) return wrong(fmt::format("{} in place of a number", shown()));
    double parsed = 0;
    const auto result = std::from_chars(text_.data() + begin, text_.data() + end, parsed);
    // from_chars also reports numbers that are too close to 0 as out of range, but parsers read them as 0.
    const std::string_view digits_of = text_.substr(begin, end - begin);
    const std::size_t e = digits_of.find_first_of("eE");
    const bool tiny = e != digits_of.npos && digits_of.substr(e + 1).starts_with('-');
    if (result.ec == std::errc::result_out_of_range && !tiny)
      return wrong(fmt::format("{}, a number out of range", shown()));
    if (digits_of.find_first_of(".eE") == digits_of.npos && !has_64_bits(digits_of))
      doubt(fmt::format("{}, an integer of more than 64 bits", digits_of.substr(0, 40)));
    at_ = end;
    return true;
  }

  std::string_view text_;
  std::size_t levels_;
  std::size_t at_ = 0;
  bool high_before_ = false;
  std::optional<JsonFault> fault_, doubtful_;
};

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t levels) {
  return JsonWalker(text, levels).run();
}

std::string found_in_json(std::string_view text, std::size_t levels) {
  JsonWalker walk(text, levels);
  auto fault = walk.run();
  if (!fault) fault = walk.doubtful();
  return fault ? fmt::format("{} on line {}", fault->found, fault->line) : "another value";
}

}  // namespace strata
