#include "runtime/recipe/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/json/json_writer.h"
#include "base/quote.h"

namespace strata::runtime {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

std::string read_text(const std::filesystem::path& path, std::string_view what) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(Exit::usage, "{} {} is a folder, not a TOML file{}", what, path.string(),
         what == "recipe" ? fmt::format("; for a model's folder, give --set model.path={}", shell_word(path.string()))
                          : "");
  return read_input(path, fmt::format("{} {}", what, path.string()), kMaxBytes, Pipes::handed_over);
}

std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1 && text.find('\n') != text.npos; --number) text.remove_prefix(text.find('\n') + 1);
  return text.substr(0, text.find_first_of("\r\n"));
}

// A hint at a common mistake in a line that is not TOML; empty if the line has no such mistake.
std::string_view hint_for(std::string_view line) {
  const std::size_t equals = line.find('='), colon = line.find(':');
  if (colon != line.npos && equals == line.npos) return " (is this YAML? TOML has KEY = VALUE below its [SECTION])";
  if (equals == line.npos) return "";
  const std::size_t value = line.find_first_not_of(" \t", equals + 1);
  const bool bare = value != line.npos && (std::isalpha(static_cast<unsigned char>(line[value])) ||
                                           std::strchr("./~", line[value]) != nullptr);
  return bare ? " (strings need quotes: KEY = \"TEXT\")" : "";
}

}  // namespace

void refuse_deep_keys(std::string_view text, std::string_view what) {
  constexpr std::size_t kMaxDots = 100;
  std::size_t dots = 0;
  char before = '\0';
  for (const char c : text) {
    const bool of_a_key = std::isalnum(static_cast<unsigned char>(c)) || (c != '\0' && std::strchr("_-\"' \t", c));
    if (c == '.' && before != '.')
      ++dots;
    else if (!of_a_key)  // two dots in a row cannot be part of a key
      dots = 0;
    before = c;
    if (dots > kMaxDots) fail(Exit::usage, "{} has a key of more than {} parts", what, kMaxDots);
  }
}

toml::table read_toml(const std::filesystem::path& path, std::string_view what) {
  const std::string text = read_text(path, what);
  refuse_deep_keys(text, fmt::format("{} {}", what, path.string()));
  try {
    return toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    const bool json =
        text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '{';
    if (json)
      fail(Exit::usage,
           "{} {} looks like JSON: a {} is written in TOML; docs/coming-from.md maps the keys of DeepSpeed, Accelerate "
           "and others",
           what, path.string(), what);
    const auto line = error.source().begin.line;
    fail(Exit::usage, "{} {}, line {}, column {}: {}{}", what, path.string(), line, error.source().begin.column,
         error.description(), hint_for(line_of(text, line)));
  } catch (const TomlAssertion&) {
    fail(Exit::usage, "{} {} is not TOML", what, path.string());
  }
}

namespace {

// A float that reads back as a float: 5.0, not 5.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // n: of inf and nan
}

// The names of a table in the order of the text; toml++ sorts them.
std::vector<std::string> names_of(const toml::table& table) {
  std::vector<std::pair<toml::source_position, std::string>> names;
  for (const auto& [name, item] : table) names.emplace_back(name.source().begin, std::string(name.str()));
  std::ranges::stable_sort(names, {}, [](const auto& name) { return std::pair(name.first.line, name.first.column); });
  std::vector<std::string> out;
  for (auto& [position, name] : names) out.push_back(std::move(name));
  return out;
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
  } else if (const auto* table = node.as_table()) {
    for (const std::string& name : names_of(*table))
      text += fmt::format("{}{} = {}", text.empty() ? "{" : ", ", name, shown(*table->get(name)));
    text = text.empty() ? "{}" : text + "}";
  } else {
    std::ostringstream out;
    node.visit([&](const auto& typed) { out << typed; });
    text = out.str();
  }
  return excerpt(text, 200);
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
    RecipeTable entries;
    for (std::string& name : names_of(*table)) {
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
  if (const auto* array = node.as_array()) {
    JsonArray out;
    for (const toml::node& item : *array) out.add(JsonText{json_of(item, key)});
    return out.text();
  }
  if (const auto* table = node.as_table()) {
    JsonObject out;
    for (const auto& [name, item] : *table) out.add(name.str(), JsonText{json_of(item, key)});
    return out.text();
  }
  fail(Exit::usage, "{} = {}: config.json has no dates or times", key, shown(node));
}

namespace {

void flatten(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<Assignment>& out) {
  for (const auto& [name, node] : table) {
    std::string key = prefix + std::string(name.str());
    const bool config = key.starts_with(kConfigPrefix);
    // An empty table is not a section but a value, which no other key takes.
    const auto* inner = node.as_table();
    const bool value = inner && inner->is_inline() && (config || inner->empty());
    if (inner && !value && !takes_table(key)) {
      flatten(*inner, key + ".", file, out);
      continue;
    }
    std::string where = file.empty() ? "--set" : fmt::format("{}, line {}", file, node.source().begin.line);
    out.push_back({std::move(key), &node, std::move(where)});
  }
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first, last - first + 1);
}

struct KeyAndValue {
  std::string key;
  toml::table table;  // {value: ...}, which owns the value
  std::string json;   // a config.json may need null, and is quoted with its own objects
};

KeyAndValue read_set(const std::string& set) {
  const auto equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(Exit::usage, "--set {}: it takes KEY=VALUE, such as --set training.max_steps=100", set);
  }
  std::string key(trimmed(std::string_view(set).substr(0, equals)));
  const std::string_view text = trimmed(std::string_view(set).substr(equals + 1));
  try {
    refuse_deep_keys(text, "the value");
    toml::table table = toml::parse("value = " + std::string(text) + "\n");
    if (table.size() == 1) return {std::move(key), std::move(table)};  // more entries: the text contains a line break
  } catch (const toml::parse_error&) {
  } catch (const TomlAssertion&) {
  }
  toml::table table;
  table.insert("value", std::string(text));
  const bool json = text == "null" || text.starts_with('{');
  return {std::move(key), std::move(table), std::string(json ? text : "")};
}

}  // namespace

bool takes_table(std::string_view key) {
  return key == "adapter.rank_pattern" || key == "adapter.alpha_pattern";
}

std::string unquoted_key(const std::string& key) {
  if (key.find_first_of("\"'") == key.npos) return key;
  refuse_deep_keys(key, "--set");
  try {
    const toml::table parsed = toml::parse(key + " = 0\n");
    std::string out;
    const toml::table* table = &parsed;
    for (; table && table->size() == 1; table = table->begin()->second.as_table())
      out += (out.empty() ? "" : ".") + std::string(table->begin()->first.str());
    return table ? key : out;  // more entries: the text contains a line break
  } catch (const toml::parse_error&) {
  } catch (const TomlAssertion&) {
  }
  return key;
}

std::vector<Assignment> assignments_of(const toml::table& recipe, const std::string& file) {
  std::vector<Assignment> out;
  flatten(recipe, "", file, out);
  return out;
}

Set parse_set(const std::string& set) {
  auto [key, table, json] = read_set(set);
  const bool config = key.starts_with(kConfigPrefix);
  Set out{.table = std::move(table), .assignments = {}};
  const toml::node* node = out.table.get("value");
  const auto* inner = node->as_table();
  if (inner && !inner->empty() && !config && !takes_table(key)) {  // --set optimizer='{eps=1e-6}'
    flatten(*inner, key + ".", "", out.assignments);
  } else {
    out.assignments.push_back({std::move(key), node, "--set", config ? std::move(json) : ""});
  }
  return out;
}

}  // namespace strata::runtime
