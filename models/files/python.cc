#include "models/files/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <regex>

namespace strata::models {
namespace {

// DEL: no other string in a config begins with it.
constexpr char kPythonNumber = '\x7f';

// The number at `at` that simdjson refuses, or nothing.
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
  // An option of libstdc++, without back-references. With its default algorithm some patterns take forever.
  const std::regex compiled(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  return std::regex_match(text.begin(), text.end(), compiled);
}

}  // namespace strata::models
