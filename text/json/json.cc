#include "text/json/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <bit>

#include "base/json/json_fault.h"
#include "base/quote.h"

namespace strata::text {
namespace {

using simdjson::dom::element;

element element_of(Json::Node node) {
  return std::bit_cast<element>(node);
}
Json::Node node_of(element value) {
  return std::bit_cast<Json::Node>(value);
}

Json parse(simdjson::dom::parser& parser, std::string_view text, const std::string& file, std::string_view expected) {
  element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root))
    fail(Exit::corrupt, "{}: expected {}, found {}", file, expected, found_in_json(text));
  return Json(node_of(root), file, "");
}

}  // namespace

JsonDocument::JsonDocument(std::string_view text, const std::string& file, std::string_view expected)
    : parser_(std::make_unique<simdjson::dom::parser>()), root_(parse(*parser_, text, file, expected)) {}
JsonDocument::~JsonDocument() = default;

bool Json::is_null() const {
  return element_of(node_).is_null();
}
bool Json::is_text() const {
  return element_of(node_).is_string();
}
bool Json::is_object() const {
  return element_of(node_).is_object();
}
bool Json::is_array() const {
  return element_of(node_).is_array();
}

std::string_view Json::text() const {
  std::string_view out;
  if (element_of(node_).get_string().get(out) != simdjson::SUCCESS) wrong("a string");
  return out;
}

bool Json::flag() const {
  bool out = false;
  if (element_of(node_).get_bool().get(out) != simdjson::SUCCESS) wrong("true or false");
  return out;
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t out = 0;
  if (element_of(node_).get_int64().get(out) != simdjson::SUCCESS || out < least || out > most) {
    wrong(fmt::format("an integer from {} to {}", least, most));
  }
  return out;
}

double Json::number() const {
  double out = 0;
  if (element_of(node_).get_double().get(out) != simdjson::SUCCESS) wrong("a number");
  return out;
}

std::optional<Json> Json::find(std::string_view key) const {
  simdjson::dom::object object;
  if (element_of(node_).get_object().get(object) != simdjson::SUCCESS) wrong("an object");
  simdjson::dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return Json(node_of(value), *file_, below(key));
}

Json Json::at(std::string_view key) const {
  auto found = find(key);
  if (!found) wrong(fmt::format("an object with the key \"{}\"", key));
  return *std::move(found);
}

bool Json::flag_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->flag() : otherwise;
}

std::string Json::text_or(std::string_view key, std::string_view otherwise) const {
  const auto found = find(key);
  return std::string(found ? found->text() : otherwise);
}

std::string Json::minified() const {
  return simdjson::minify(element_of(node_));
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  return fmt::format("{}... ({} bytes)", beginning_of(text, most), text.size());
}

void Json::each(const std::function<void(const Json&)>& use) const {
  simdjson::dom::array array;
  if (element_of(node_).get_array().get(array) != simdjson::SUCCESS) wrong("an array");
  std::size_t index = 0;
  for (const auto item : array) use(Json(node_of(item), *file_, fmt::format("{}[{}]", place_, index++)));
}

void Json::each_field(const std::function<void(std::string_view key, const Json&)>& use) const {
  simdjson::dom::object object;
  if (element_of(node_).get_object().get(object) != simdjson::SUCCESS) wrong("an object");
  for (const auto field : object) use(field.key, Json(node_of(field.value), *file_, below(field.key)));
}

std::string Json::below(std::string_view key) const {
  return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
}

void Json::wrong(std::string_view expected) const {
  constexpr std::size_t kMaxFound = 64;
  fail(Exit::corrupt, "{}: {}: expected {}, found {}", *file_, place_.empty() ? "the top level" : shortened(place_),
       expected, shortened(simdjson::minify(element_of(node_)), kMaxFound));
}

void Json::unsupported(std::string_view what) const {
  fail(Exit::usage, "{}: {}: {} is not supported", *file_, place_.empty() ? "the top level" : shortened(place_), what);
}

}  // namespace strata::text
