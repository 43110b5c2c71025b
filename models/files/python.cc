#include "models/files/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <utility>

namespace strata::models {
namespace {

// DEL: no other string in a config begins with it.
constexpr char kPythonNumber = '\x7f';

// The number at `at` that simdjson refuses; empty if there is none.
std::string_view python_number(std::string_view json, std::size_t at) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
    if (json.substr(at).starts_with(word)) return word;
  const std::size_t end_of_number = std::min(json.find_first_not_of("0123456789+-.eE", at), json.size());
  const std::string text(json.substr(at, end_of_number - at));
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  errno = 0;
  const bool whole = text.find_first_of(".eE") == std::string::npos;
  if (whole) (void)std::strtoll(text.c_str(), nullptr, 10);
  const bool large = whole ? errno == ERANGE : std::isinf(value);
  return large && *end == '\0' ? json.substr(at, end_of_number - at) : std::string_view{};
}

std::string unmarked(std::string text) {
  const std::string begin = {'"', kPythonNumber};
  for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    text.erase(text.find('"', at + 1), 1);
    text.erase(at, 2);
  }
  return text;
}

// Reads a regular expression as Python's re does, and finds syntax that std::regex lacks or interprets differently.
class PatternScanner {
 public:
  explicit PatternScanner(std::string_view pattern) : pattern_(pattern) {}

  std::optional<std::string> foreign() {
    if (std::ranges::any_of(pattern_, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
      return "characters outside ASCII";
    bool repeatable = false;  // whether the preceding item can be repeated
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      std::optional<std::string> found;
      if (c == '\\') {
        const bool boundary = rest().starts_with("\\b") || rest().starts_with("\\B");
        found = escape("dDsSwWbBntrfvx");
        repeatable = !boundary;
      } else if (c == '[') {
        found = set();
        repeatable = true;
      } else if (c == '(') {
        found = group();
        repeatable = false;
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        found = repetition(repeatable);
        repeatable = false;
      } else {
        ++at_;
        repeatable = c != '|' && c != '^' && c != '$';
      }
      if (found) return found;
    }
    return std::nullopt;
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }

  // Takes a backslash and its letter, which is one of `letters`.
  std::optional<std::string> escape(std::string_view letters) {
    if (at_ + 1 == pattern_.size()) {
      ++at_;
      return std::nullopt;
    }
    const char c = pattern_[at_ + 1];
    const bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (digit && c != '0') return fmt::format("back-references or octal numbers (\\{})", c);
    if (digit || (letter && letters.find(c) == std::string_view::npos)) return fmt::format("\\{}", c);
    at_ += 2;
    return std::nullopt;
  }

  std::optional<std::string> group() {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"(?<", "look-behind"},
                                                                        {"(?P", "named groups"},
                                                                        {"(?#", "comments"},
                                                                        {"(?>", "atomic groups"},
                                                                        {"(?(", "conditions"}};
    if (rest().starts_with("(?:") || rest().starts_with("(?=") || rest().starts_with("(?!")) {
      at_ += 3;
      return std::nullopt;
    }
    if (!rest().starts_with("(?")) {
      ++at_;
      return std::nullopt;
    }
    for (const auto& [syntax, name] : kNames)
      if (rest().starts_with(syntax)) return fmt::format("{} ({})", name, syntax);
    return fmt::format("flags ({})", rest().substr(0, 3));
  }

  // Takes *, +, ?, {2}, {2,} or {2,3}, each also followed by ?.
  std::optional<std::string> repetition(bool repeatable) {
    const std::string_view from = rest();
    std::size_t size = 1;
    if (from[0] == '{') {
      if (from.starts_with("{,")) return "a repetition without a minimum ({,)";
      const auto digits = [&] {
        const std::size_t begin = size;
        while (size < from.size() && from[size] >= '0' && from[size] <= '9') ++size;
        return size > begin;
      };
      bool closed = digits();
      if (closed && size < from.size() && from[size] == ',') {
        ++size;
        digits();
      }
      closed = closed && size < from.size() && from[size] == '}';
      if (!closed) return "a brace that begins no repetition such as {2} or {1,3}";
      ++size;
    }
    // Python refuses what std::regex would repeat, or repeats what std::regex refuses, such as a look-ahead.
    if (!repeatable && at_ > 0 && pattern_[at_ - 1] != '(' && pattern_[at_ - 1] != '|')
      return fmt::format("a repetition of nothing ({})", from.substr(0, size));
    at_ += size;
    if (rest().starts_with('?')) ++at_;
    if (rest().starts_with('+')) return fmt::format("possessive or double repetitions ({}+)", from.substr(0, size));
    if (rest().find_first_of("*?{") == 0)
      return fmt::format("two repetitions in a row ({})", pattern_.substr(at_ - 1, 2));
    return std::nullopt;
  }

  // Takes [...].
  std::optional<std::string> set() {
    if (rest().starts_with("[]") || rest().starts_with("[^]")) return "a set that begins with a bracket ([])";
    at_ += rest().starts_with("[^") ? 2 : 1;
    const std::size_t begin = at_;
    std::size_t item = at_;  // where the latest character or class begins
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      for (const std::string_view inner : {"[:", "[.", "[="})
        if (rest().starts_with(inner)) return fmt::format("named sets ({})", inner);
      const bool dash = pattern_[at_] == '-' && at_ > begin && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (dash) {
        const std::string_view ends[] = {pattern_.substr(item, at_ - item), pattern_.substr(at_ + 1, 2)};
        for (const std::string_view end : ends)
          if (end.starts_with('-') || (end.starts_with('\\') && end != "\\-" && end != "\\."))
            return fmt::format("a range in a set that is not of two plain characters ({}-{})", ends[0],
                               ends[1].starts_with('\\') ? ends[1] : ends[1].substr(0, 1));
        ++at_;
        if (pattern_[at_] == '[') return "a range in a set that ends at a bracket";
        if (pattern_[at_] == '\\') ++at_;
        ++at_;
        item = at_;
        if (rest().starts_with('-') && !rest().starts_with("-]"))
          return "a dash after a range in a set (write it as the last character)";
        continue;
      }
      item = at_;
      if (pattern_[at_] != '\\')
        ++at_;
      else if (const auto found = escape("dDsSwWbntrfvx"))
        return found;
    }
    if (at_ < pattern_.size()) ++at_;
    return std::nullopt;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
};

}  // namespace

std::string without_python_numbers(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  bool in_text = false;
  for (std::size_t i = 0; i < json.size();) {
    const char c = json[i];
    if (in_text && c == '\\' && i + 1 < json.size()) {
      out += json.substr(i, 2);
      i += 2;
    } else if (!in_text && (c == '-' || c == 'N' || c == 'I' || (c >= '0' && c <= '9'))) {
      const std::size_t end_of_number = std::min(json.find_first_of(",]} \t\r\n", i), json.size());
      const auto number = python_number(json, i);
      const bool refused = !number.empty() && number.size() == end_of_number - i;
      out += refused ? fmt::format("\"{}{}\"", kPythonNumber, number) : std::string(json.substr(i, end_of_number - i));
      i = end_of_number;
    } else {
      if (c == '"') in_text = !in_text;
      out += c;
      ++i;
    }
  }
  return out;
}

std::string minified(simdjson::dom::element node) {
  return unmarked(simdjson::minify(node));
}
std::string minified(simdjson::dom::object node) {
  return unmarked(simdjson::minify(node));
}

std::optional<double> python_number_of(std::string_view text) {
  if (text.empty() || text[0] != kPythonNumber) return std::nullopt;
  const std::string digits(text.substr(1));
  return std::strtod(digits.c_str(), nullptr);
}

bool matches_whole(const std::string& pattern, std::string_view text) {
  // __polynomial is an option of libstdc++ that excludes back-references. With the default algorithm, some patterns
  // take forever.
  const std::regex compiled(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  return std::regex_match(text.begin(), text.end(), compiled);
}

std::optional<std::string> foreign_syntax(std::string_view pattern) {
  return PatternScanner(pattern).foreign();
}

}  // namespace strata::models
