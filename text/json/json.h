#pragma once
// text/json/ reads JSON: as a document of which messages name each place (here), or as values (json_value.h), as
// Python's json.loads makes them.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace simdjson::dom {
class parser;
}

// simdjson.h itself stays out of this header: most of the tokenizers' sources would parse it.
namespace strata::text {

// A value of a JSON file with its place in it, for sentences such as "FILE: model.merges[7]: expected a string". Lives
// as long as the parser. Getters throw Error{corrupt} if the value is of another type.
class Json {
 public:
  // The words of simdjson's element.
  struct Node {
    const void* document;
    std::size_t place;
  };
  Json(Node node, const std::string& file, std::string place) : node_(node), file_(&file), place_(std::move(place)) {}

  std::string_view text() const;
  bool flag() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number() const;
  bool is_null() const;
  bool is_text() const;
  bool is_object() const;
  bool is_array() const;

  // A key of this object; nullopt if it is missing or null.
  std::optional<Json> find(std::string_view key) const;
  Json at(std::string_view key) const;
  // The key's value, or `otherwise` if it is missing or null.
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  std::string minified() const;
  // "type" of a component.
  std::string_view type() const { return at("type").text(); }

  // Calls use for each element of this array; with its key, for each field of this object.
  void each(const std::function<void(const Json&)>& use) const;
  void each_field(const std::function<void(std::string_view key, const Json&)>& use) const;

  // Error{corrupt}: FILE: PLACE: expected ..., found ...
  [[noreturn]] void wrong(std::string_view expected) const;
  // Error{usage}: FILE: PLACE: `what` is not supported.
  [[noreturn]] void unsupported(std::string_view what) const;

 private:
  std::string below(std::string_view key) const;

  Node node_;
  const std::string* file_;
  std::string place_;
};

// A text of any length as messages show it: its first bytes, and how many it has.
std::string shortened(std::string_view text, std::size_t most = 200);

// A parsed text, which need not outlive the parse; `file` must. Throws Error{corrupt} if it is not JSON: "expected
// EXPECTED, found: ...".
class JsonDocument {
 public:
  JsonDocument(std::string_view text, const std::string& file, std::string_view expected);
  ~JsonDocument();
  const Json& root() const { return root_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  Json root_;
};

}  // namespace strata::text
