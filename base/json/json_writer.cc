#include "base/json/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace strata {
namespace {

// The texts before the first member and before each of the others, by JsonLayout.
constexpr std::pair<std::string_view, std::string_view> kSeparators[] = {
    {"", ","}, {"", ", "}, {"", ",\n"}, {"\n", ",\n"}, {"\n  ", ",\n  "}};
static_assert(std::size(kSeparators) == static_cast<std::size_t>(JsonLayout::indented) + 1);

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : "null";
}

namespace json {

std::string text_of(const JsonArray& value) {
  return value.text();
}
std::string text_of(const JsonObject& value) {
  return value.text();
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(double value) {
  return json_number(value);
}
std::string text_of(Decimals value) {
  return std::isfinite(value.value) ? fmt::format("{:.{}f}", value.value, value.digits) : "null";
}
std::string text_of(JsonText value) {
  return std::string(value.text);
}
std::string text_of(std::string_view value) {
  return json_string(value);
}

void append(std::string& text, JsonLayout layout, const std::string& next) {
  const auto& [first, other] = kSeparators[static_cast<std::size_t>(layout)];
  text += text.empty() ? first : other;
  if (layout != JsonLayout::indented) {
    text += next;
    return;
  }
  // Line breaks are between members of `next`: those in strings are escaped.
  for (const char c : next) {
    text += c;
    if (c == '\n') text += "  ";
  }
}

std::string enclosed(char open, const std::string& text, JsonLayout layout, char close) {
  const bool breaks = layout == JsonLayout::indented && !text.empty();
  return open + text + (breaks ? "\n" : "") + close;
}

const char* colon(JsonLayout layout) {
  return layout == JsonLayout::spaced || layout == JsonLayout::indented ? ": " : ":";
}

}  // namespace json
}  // namespace strata
