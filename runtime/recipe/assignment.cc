#include "runtime/recipe/assignment.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

void flatten(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<Assignment>& out) {
  for (const auto& [name, node] : table) {
    std::string key = prefix + std::string(name.str());
    const bool config = key.starts_with(kConfigPrefix);
    // An empty table is no section: it is a value, which no other key takes.
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
