#pragma once
// base/json/ writes JSON as text, in the order of the calls (here), and explains faults in JSON that was read
// (json_fault.h).

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

std::string json_string(std::string_view text);  // in quotes; `text` is UTF-8
std::string json_number(double x);               // the shortest text that reads back as x; null if x is not finite

// A number with this many decimals.
struct Decimals {
  double value;
  int digits;
};
inline std::optional<Decimals> decimals(const std::optional<double>& value, int digits) {
  return value ? std::optional(Decimals{*value, digits}) : std::nullopt;
}
// Text that is already JSON.
struct JsonText {
  std::string_view text;
};

// The layout of the members of an object and the items of an array.
enum class JsonLayout {
  compact,   // [1,2]
  spaced,    // [1, 2]
  wrapped,   // compact, with a line break after each comma
  lines,     // one per line
  indented,  // like Python's json.dumps(indent=2)
};

class JsonArray;
class JsonObject;

namespace json {
std::string text_of(const JsonArray& value);
std::string text_of(const JsonObject& value);
std::string text_of(bool value);
std::string text_of(double value);
std::string text_of(Decimals value);
std::string text_of(JsonText value);
std::string text_of(std::string_view value);
// Appends a member or item to those before it.
void append(std::string& text, JsonLayout layout, const std::string& next);
std::string enclosed(char open, const std::string& text, JsonLayout layout, char close);
const char* colon(JsonLayout layout);
inline std::string text_of(const char* value) {
  return text_of(std::string_view(value));
}
inline std::string text_of(const std::string& value) {
  return text_of(std::string_view(value));
}
template <std::integral T>
std::string text_of(T value) {
  return std::to_string(value);
}
template <typename T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "null";
}
}  // namespace json

class JsonArray {
 public:
  explicit JsonArray(JsonLayout layout = JsonLayout::compact) : layout_(layout) {}

  template <typename T>
  JsonArray& add(const T& value) {
    json::append(text_, layout_, json::text_of(value));
    return *this;
  }
  template <typename Range>
  JsonArray& add_all(const Range& values) {
    for (const auto& value : values) add(value);
    return *this;
  }
  bool empty() const { return text_.empty(); }
  std::string text() const { return json::enclosed('[', text_, layout_, ']'); }

 private:
  JsonLayout layout_;
  std::string text_;
};

class JsonObject {
 public:
  explicit JsonObject(JsonLayout layout = JsonLayout::compact) : layout_(layout) {}

  template <typename T>
  JsonObject& add(std::string_view name, const T& value) {
    json::append(text_, layout_, json_string(name) + json::colon(layout_) + json::text_of(value));
    return *this;
  }
  // Appends the members of another object in their own layout.
  JsonObject& add_all(const JsonObject& other) {
    if (!other.text_.empty()) json::append(text_, layout_, other.text_);
    return *this;
  }
  // The text without the braces, for callers that lay out the object themselves.
  const std::string& members() const { return text_; }
  std::string text() const { return json::enclosed('{', text_, layout_, '}'); }

 private:
  JsonLayout layout_;
  std::string text_;
};

}  // namespace strata
