#pragma once
// text/json/ reads JSON: as a document whose places messages can name (here), or as the values that Python's json.loads
// makes (json_value.h).
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

// This header does not include simdjson.h, because most of the tokenizer's sources would then have to parse it.
namespace strata::text {

// A value in a JSON file with its place, for messages such as "FILE: model.merges[7]: expected a string". It lives as
// long as the parser. Getters throw Error{corrupt} if the value has another type.
class Json {
 public:
  // The words that make up simdjson's element.
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

  // The value of a key in this object; nullopt if the key is missing or its value is null.
  std::optional<Json> find(std::string_view key) const;
  Json at(std::string_view key) const;
  // The key's value, or `otherwise` if it is missing or null.
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  std::string minified() const;
  // The "type" of a component.
  std::string_view type() const { return at("type").text(); }

  // Calls `use` for each element of this array, or for each field of this object with its key.
  void each(const std::function<void(const Json&)>& use) const;
  void each_field(const std::function<void(std::string_view key, const Json&)>& use) const;

  // Throws Error{corrupt}: "FILE: PLACE: expected ..., found ...".
  [[noreturn]] void wrong(std::string_view expected) const;
  // Throws Error{usage}: "FILE: PLACE: `what` is not supported".
  [[noreturn]] void unsupported(std::string_view what) const;

 private:
  std::string below(std::string_view key) const;

  Node node_;
  const std::string* file_;
  std::string place_;
};

// A long text as shown in messages: its first bytes and its length.
std::string shortened(std::string_view text, std::size_t most = 200);

// A parsed text. The text need not outlive the constructor, but `file` must outlive the document. Throws Error{corrupt}
// if the text is not JSON: "expected EXPECTED, found: ...".
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
