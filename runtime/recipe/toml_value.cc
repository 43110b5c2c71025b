#include "runtime/recipe/toml_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"

namespace strata::runtime {
namespace {

// A float that reads back as a float: 5.0, not 5.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // n: of inf and nan
}

}  // namespace

std::string shown(const toml::node& node) {
  std::string text;
  if (const auto* number = node.as_floating_point()) {
    text = float_text(number->get());
  } else if (const auto* string = node.as_string()) {
    text = json_string(string->get());
  } else if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) text += (text.empty() ? "[" : ", ") + shown(item);
    text = text.empty() ? "[]" : text + "]";
  } else {
    std::ostringstream out;
    node.visit([&](const auto& typed) { out << typed; });
    text = out.str();
  }
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

std::optional<RecipeValue> value_of(const toml::node& node) {
  RecipeValue out{.value = false, .shown = shown(node)};
  if (const auto* flag = node.as_boolean()) {
    out.value = flag->get();
  } else if (const auto* integer = node.as_integer()) {
    out.value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    out.value = number->get();
  } else if (const auto* text = node.as_string()) {
    out.value = text->get();
  } else if (const auto* array = node.as_array()) {
    std::vector<RecipeValue> items;
    for (const toml::node& item : *array) {
      auto value = value_of(item);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
    }
    out.value = std::move(items);
  } else if (const auto* table = node.as_table()) {
    // Keep the order of the text, because the first pattern that matches is used.
    std::vector<std::pair<toml::source_position, std::string>> names;
    for (const auto& [name, item] : *table) names.emplace_back(name.source().begin, std::string(name.str()));
    std::ranges::stable_sort(names, {}, [](const auto& name) { return std::pair(name.first.line, name.first.column); });
    RecipeTable entries;
    for (auto& [position, name] : names) {
      auto value = value_of(*table->get(name));
      if (!value) return std::nullopt;
      entries.emplace_back(std::move(name), std::move(*value));
    }
    out.value = std::move(entries);
  } else {
    return std::nullopt;
  }
  return out;
}

std::string json_of(const toml::node& node, const std::string& key) {
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* number = node.as_floating_point()) {
    const double x = number->get();
    if (x - x != 0) fail(Exit::usage, "{} = {}: config.json has no such number", key, shown(node));
    return float_text(x);
  }
  if (const auto* text = node.as_string()) return json_string(text->get());
  std::string out;
  if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) out += (out.empty() ? "" : ",") + json_of(item, key);
    return "[" + out + "]";
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [name, item] : *table) {
      out += (out.empty() ? "" : ",") + json_string(name.str()) + ":" + json_of(item, key);
    }
    return "{" + out + "}";
  }
  fail(Exit::usage, "{} = {}: config.json has no dates or times", key, shown(node));
}

}  // namespace strata::runtime
