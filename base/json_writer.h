#pragma once
#include <concepts>
#include <string>
#include <string_view>

// JSON as text, written in the order in which it is given. base/json_fault.h says what is wrong in what is read.
namespace strata {

std::string json_string(std::string_view text);  // in quotes; `text` is UTF-8
std::string json_number(double x);               // the shortest that reads back as x; null if it is not finite

// A number with so many decimals.
struct Decimals {
  double value;
  int digits;
};
// Text that is JSON already.
struct JsonText {
  std::string_view text;
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
}  // namespace json

class JsonArray {
 public:
  template <typename T>
  JsonArray& add(const T& value) {
    text_ += text_.empty() ? "" : ",";
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
  std::string text_;
};

class JsonObject {
 public:
  template <typename T>
  JsonObject& add(std::string_view name, const T& value) {
    text_ += text_.empty() ? "" : ",";
    text_ += json_string(name) + ":" + json::text_of(value);
    return *this;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace strata
