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

// The layout of an object's members and an array's items: [1,2], [1, 2], or one per line.
enum class JsonLayout { compact, spaced, lines };

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
std::string_view separator(JsonLayout layout, bool first);
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
    text_ += json::separator(layout_, text_.empty());
    text_ += json::text_of(value);
    return *this;
  }
  template <typename Range>
  JsonArray& add_all(const Range& values) {
    for (const auto& value : values) add(value);
    return *this;
  }
  bool empty() const { return text_.empty(); }
  std::string text() const { return "[" + text_ + "]"; }

 private:
  JsonLayout layout_;
  std::string text_;
};

class JsonObject {
 public:
  explicit JsonObject(JsonLayout layout = JsonLayout::compact) : layout_(layout) {}

  template <typename T>
  JsonObject& add(std::string_view name, const T& value) {
    text_ += json::separator(layout_, text_.empty());
    text_ += json_string(name) + (layout_ == JsonLayout::spaced ? ": " : ":") + json::text_of(value);
    return *this;
  }
  // Appends the members of another object.
  JsonObject& add_all(const JsonObject& other) {
    if (!other.text_.empty()) text_.append(json::separator(layout_, text_.empty())).append(other.text_);
    return *this;
  }
  // The text without the braces, for callers that lay out the object themselves.
  const std::string& members() const { return text_; }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  JsonLayout layout_;
  std::string text_;
};

}  // namespace strata
