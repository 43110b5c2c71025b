#include "models/files/config.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "models/files/python.h"

namespace strata::models {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 16;

using Values = std::map<std::string, Config::Value, std::less<>>;
using simdjson::dom::element;

// The reason why a text cannot be a configuration; the caller adds the context.
struct Malformed {
  std::string why;
};

Config::Value scalar(element node) {
  std::string_view text;
  std::int64_t integer = 0;
  std::uint64_t large = 0;
  double number = 0;
  bool flag = false;
  if (node.is_null()) return nullptr;
  if (node.get_bool().get(flag) == simdjson::SUCCESS) return flag;
  if (node.get_int64().get(integer) == simdjson::SUCCESS) return integer;
  if (node.get_uint64().get(large) == simdjson::SUCCESS) return static_cast<double>(large);
  if (node.get_double().get(number) == simdjson::SUCCESS) return number;
  if (node.get_string().get(text) == simdjson::SUCCESS) {
    if (const auto python = python_number_of(text)) return *python;
    return std::string(text);
  }
  return Config::Raw{minified(node)};
}

// Python would use the last of two equal keys. We cannot guess which one was meant if their values differ.
void require_each_once(simdjson::dom::object object, std::string_view inside) {
  std::map<std::string_view, element> seen;
  for (const auto field : object)
    if (const auto [first, is_new] = seen.emplace(field.key, field.value);
        !is_new && minified(first->second) != minified(field.value))
      throw Malformed{fmt::format("has the key {}{}{} twice, with different values: remove one of them", inside,
                                  inside.empty() ? "" : ".", field.key)};
}

bool has_dotted_key(simdjson::dom::object object) {
  return std::any_of(object.begin(), object.end(),
                     [](auto field) { return field.key.find('.') != std::string_view::npos || field.key.empty(); });
}

void flatten(element node, const std::string& key, Values& out) {
  simdjson::dom::object object;
  if (node.get_object().get(object) != simdjson::SUCCESS || object.size() == 0 || has_dotted_key(object)) {
    out.emplace(key, scalar(node));
    return;
  }
  require_each_once(object, key);
  for (const auto field : object) flatten(field.value, key + "." + std::string(field.key), out);
}

// Parses `json` and passes its root to `use`. Throws Malformed beyond the limits of size and depth.
template <typename Use>
void with_document(std::string_view json, Use&& use) {
  if (json.size() > kMaxBytes)
    throw Malformed{fmt::format("has {} bytes, but a config has at most 1 MiB", json.size())};
  simdjson::dom::parser parser;
  element root;
  const std::string text = without_python_numbers(json);
  auto error = parser.allocate(text.size() + 1, kMaxDepth);
  if (error == simdjson::SUCCESS) error = parser.parse(text.data(), text.size(), true).get(root);
  if (error == simdjson::DEPTH_ERROR) throw Malformed{fmt::format("is nested deeper than {} levels", kMaxDepth)};
  if (error != simdjson::SUCCESS) throw Malformed{fmt::format("is not JSON: it has {}", found_in_json(text))};
  use(root);
}

std::string json_of(const Config::Value& value) {
  struct Writer {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t integer) const { return fmt::format("{}", integer); }
    std::string operator()(double number) const {
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
      const std::string text = fmt::format("{}", number);
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;  // Python reads it as a float as well
    }
    std::string operator()(const std::string& text) const { return json_string(text); }
    std::string operator()(const Config::Raw& raw) const { return raw.json; }
  };
  return std::visit(Writer{}, value);
}

}  // namespace

Config Config::parse(std::string_view json, std::string source) {
  Config out;
  out.source_ = std::move(source);
  try {
    with_document(json, [&](element root) {
      simdjson::dom::object object;
      if (root.get_object().get(object) != simdjson::SUCCESS)
        throw Malformed{"is not a JSON object: download it again from the source of the model"};
      require_each_once(object, "");
      for (const auto field : object) {
        if (field.key.find('.') != std::string_view::npos) {
          out.dotted_.emplace(std::string(field.key), minified(field.value));
          continue;
        }
        flatten(field.value, std::string(field.key), out.values_);
      }
    });
  } catch (const Malformed& malformed) {
    fail(Exit::corrupt, "{}: {}", out.source_, malformed.why);
  }
  return out;
}

Config Config::read(const std::filesystem::path& directory) {
  const MappedFile file(directory / "config.json");
  const auto bytes = file.bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.path().string());
}

void Config::override_key(const std::string& key, std::string_view json) {
  Values flat;
  try {
    with_document(json, [&](element node) { flatten(node, key, flat); });
  } catch (const Malformed& malformed) {
    fail(Exit::usage, "model.config.{}: its value {}", key, malformed.why);
  }
  const auto inside = [&](const auto& entry) {
    return entry.first == key || entry.first.starts_with(key + ".") || key.starts_with(entry.first + ".");
  };
  std::erase_if(values_, inside);
  for (auto& [name, value] : flat) {
    overridden_.insert(name);
    values_[name] = std::move(value);
  }
}

void Config::remove(const std::string& key) {
  std::erase_if(values_, [&](const auto& entry) { return entry.first == key || entry.first.starts_with(key + "."); });
}

const std::string* Config::first_inside(std::string_view key) const {
  const std::string prefix = std::string(key) + ".";
  const auto first = values_.lower_bound(prefix);
  return first != values_.end() && first->first.starts_with(prefix) ? &first->first : nullptr;
}

const Config::Value* Config::lookup(std::string_view key, std::string_view allowed) const {
  if (first_inside(key)) wrong_type(key, allowed);
  if (!read_.contains(key)) read_.emplace(key);
  const auto found = values_.find(key);
  if (found == values_.end() || std::holds_alternative<std::nullptr_t>(found->second)) return nullptr;
  return &found->second;
}

bool Config::has(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && !std::holds_alternative<std::nullptr_t>(found->second);
}

std::string Config::json(std::string_view key) const {
  if (first_inside(key)) return "{...}";
  const auto found = values_.find(key);
  return found == values_.end() ? "null" : json_of(found->second);
}

std::vector<std::string> Config::root_keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : values_)
    if (std::string root = key.substr(0, key.find('.')); out.empty() || out.back() != root)
      out.push_back(std::move(root));
  return out;
}

bool Config::is_null(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && std::holds_alternative<std::nullptr_t>(found->second);
}

std::string_view Config::spelled(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (has(key)) return key;
  }
  return *keys.begin();
}

bool Config::overridden(std::string_view key) const {
  return overridden_.contains(key);
}

std::string Config::describe(std::string_view key) const {
  return overridden(key) ? fmt::format("model.config.{}", key) : fmt::format("{} of {}", key, source_);
}

void Config::wrong_type(std::string_view key, std::string_view allowed) const {
  if (const std::string* inside = first_inside(key)) {
    if (overridden(*inside)) fail(Exit::usage, "model.config.{} is an object: expected {}", key, allowed);
    fail(Exit::corrupt, "{} is an object: expected {}", describe(key), allowed);
  }
  const auto found = values_.find(key);
  if (found == values_.end()) fail(Exit::corrupt, "{} has no {}: expected {}", source_, key, allowed);
  fail(overridden(key) ? Exit::usage : Exit::corrupt, "{} is {}: expected {}", describe(key), json_of(found->second),
       allowed);
}

std::int64_t Config::require_int(std::string_view key) const {
  constexpr std::string_view kAllowed = "an integer from 1 to 2147483647";
  const Value* value = lookup(key, kAllowed);
  const auto* integer = value ? std::get_if<std::int64_t>(value) : nullptr;
  // The bound keeps products of a few shapes from overflowing before they are checked.
  if (!integer || *integer < 1 || *integer > std::numeric_limits<std::int32_t>::max()) wrong_type(key, kAllowed);
  return *integer;
}

std::int64_t Config::int_or(std::string_view key, std::int64_t otherwise) const {
  const Value* value = lookup(key, "an integer");
  if (!value) return otherwise;
  const auto* integer = std::get_if<std::int64_t>(value);
  if (!integer) wrong_type(key, "an integer");
  return *integer;
}

double Config::require_number(std::string_view key) const {
  if (!lookup(key, "a number")) wrong_type(key, "a number");
  return number_or(key, 0);
}

double Config::number_or(std::string_view key, double otherwise) const {
  const Value* value = lookup(key, "a number");
  if (!value) return otherwise;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(value);
  if (!number) wrong_type(key, "a number");
  return *number;
}

bool Config::bool_or(std::string_view key, bool otherwise) const {
  const Value* value = lookup(key, "true or false");
  if (!value) return otherwise;
  const auto* flag = std::get_if<bool>(value);
  if (!flag) wrong_type(key, "true or false");
  return *flag;
}

std::string Config::require_text(std::string_view key) const {
  if (!lookup(key, "a string")) wrong_type(key, "a string");
  return text_or(key, "");
}

std::string Config::require_label(std::string_view key) const {
  const Value* value = lookup(key, "a string");
  if (!value || std::holds_alternative<Raw>(*value)) wrong_type(key, "a string");
  return std::holds_alternative<std::string>(*value) ? std::get<std::string>(*value) : json_of(*value);
}

std::string Config::text_or(std::string_view key, std::string_view otherwise) const {
  const Value* value = lookup(key, "a string");
  if (!value) return std::string(otherwise);
  const auto* text = std::get_if<std::string>(value);
  if (!text) wrong_type(key, "a string");
  return *text;
}

std::vector<std::string> Config::texts(std::string_view key) const {
  constexpr std::string_view kAllowed = "a list of strings";
  const Value* value = lookup(key, kAllowed);
  if (!value) return {};
  if (const auto* text = std::get_if<std::string>(value)) return {*text};
  const auto* raw = std::get_if<Raw>(value);
  if (!raw) wrong_type(key, kAllowed);
  std::vector<std::string> out;
  with_document(raw->json, [&](element node) {
    simdjson::dom::array array;
    if (node.get_array().get(array) != simdjson::SUCCESS) wrong_type(key, kAllowed);
    for (const element item : array) {
      std::string_view text;
      if (item.get_string().get(text) != simdjson::SUCCESS) wrong_type(key, kAllowed);
      out.emplace_back(text);
    }
  });
  return out;
}

std::vector<std::int64_t> Config::integers(std::string_view key) const {
  constexpr std::string_view kAllowed = "an integer or a list of integers";
  const Value* value = lookup(key, kAllowed);
  if (!value) return {};
  if (const auto* integer = std::get_if<std::int64_t>(value)) return {*integer};
  const auto* raw = std::get_if<Raw>(value);
  if (!raw) wrong_type(key, kAllowed);
  std::vector<std::int64_t> out;
  with_document(raw->json, [&](element node) {
    simdjson::dom::array array;
    if (node.get_array().get(array) != simdjson::SUCCESS) wrong_type(key, kAllowed);
    for (const element item : array)
      if (item.get_int64().get(out.emplace_back()) != simdjson::SUCCESS) wrong_type(key, kAllowed);
  });
  return out;
}

void Config::require_object(std::string_view key, std::string_view allowed) const {
  const auto found = values_.find(key);
  if (found == values_.end() || std::holds_alternative<std::nullptr_t>(found->second)) return;
  const auto* raw = std::get_if<Raw>(&found->second);
  if (raw && raw->json == "{}") return;
  wrong_type(key, allowed);
}

std::vector<std::string> Config::keys_inside(std::string_view key) const {
  const std::string prefix = std::string(key) + ".";
  std::vector<std::string> out;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at)
    out.push_back(at->first.substr(prefix.size()));
  return out;
}

void Config::ignore(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) read_.emplace(key);
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : values_) {
    if (!std::holds_alternative<std::nullptr_t>(value) && !read_.contains(key)) out.push_back(key);
  }
  return out;
}

std::vector<std::string> Config::dotted_keys() const {
  std::vector<std::string> out;
  for (const auto& [key, json] : dotted_)
    if (json != "null") out.push_back(key);
  return out;
}

void Config::add_note(std::string sentence) const {
  if (std::ranges::find(notes_, sentence) == notes_.end()) notes_.push_back(std::move(sentence));
}

std::string Config::to_json() const {
  // Rebuilds the tree of keys. In the map they are not always adjacent, because '-' sorts before '.'.
  struct Node {
    std::map<std::string, Node> inner;
    const Value* value = nullptr;
    const std::string* json = nullptr;

    std::string text() const {
      if (value) return json_of(*value);
      if (json) return *json;
      JsonObject out(JsonLayout::indented);
      for (const auto& [key, node] : inner) out.add(key, JsonText{node.text()});
      return out.text();
    }
  };
  Node root;
  for (const auto& [key, value] : values_) {
    Node* node = &root;
    std::string_view rest = key;
    for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      node = &node->inner[std::string(rest.substr(0, dot))];
      rest.remove_prefix(dot + 1);
    }
    node->inner[std::string(rest)].value = &value;
  }
  for (const auto& [key, json] : dotted_) root.inner[key].json = &json;
  return root.text() + "\n";
}

}  // namespace strata::models
