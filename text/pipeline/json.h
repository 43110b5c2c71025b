#pragma once
#include <fmt/format.h>
#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace strata::text {

// A value of a JSON file with its place in it, for sentences such as "FILE: model.merges[7]: expected a string". Lives
// as long as the parser. Getters throw Error{corrupt} where the value is of another type.
class Json {
 public:
  Json(simdjson::dom::element value, const std::string& file, std::string place)
      : value_(value), file_(&file), place_(std::move(place)) {}

  std::string_view text() const;
  bool flag() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number() const;
  bool is_null() const { return value_.is_null(); }
  bool is_text() const { return value_.is_string(); }
  bool is_object() const { return value_.is_object(); }
  bool is_array() const { return value_.is_array(); }

  // A key of this object; nullopt where it is missing or null.
  std::optional<Json> find(std::string_view key) const;
  Json at(std::string_view key) const;
  // The key's value, or `otherwise` where it is missing or null.
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  // "type" of a component.
  std::string_view type() const { return at("type").text(); }

  // use(Json) for each element of this array; use(std::string_view key, Json) for each field of this object.
  template <typename Use>
  void each(Use&& use) const {
    simdjson::dom::array array;
    if (value_.get_array().get(array) != simdjson::SUCCESS) wrong("an array");
    std::size_t index = 0;
    for (const auto element : array) use(Json(element, *file_, fmt::format("{}[{}]", place_, index++)));
  }
  template <typename Use>
  void each_field(Use&& use) const {
    simdjson::dom::object object;
    if (value_.get_object().get(object) != simdjson::SUCCESS) wrong("an object");
    for (const auto field : object) use(field.key, Json(field.value, *file_, below(field.key)));
  }

  // Error{corrupt}: FILE: PLACE: expected ..., found ...
  [[noreturn]] void wrong(std::string_view expected) const;
  // Error{usage}: FILE: PLACE: `what` is not supported.
  [[noreturn]] void unsupported(std::string_view what) const;

 private:
  std::string below(std::string_view key) const {
    return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  }

  simdjson::dom::element value_;
  const std::string* file_;
  std::string place_;
};

// A text of any length as messages show it: its first bytes, and how many it has.
std::string shortened(std::string_view text, std::size_t most = 200);

}  // namespace strata::text
