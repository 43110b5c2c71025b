#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "base/json/json_writer.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

namespace fs = std::filesystem;

namespace {

// One part of a key, or the name of an entry; unquoted if TOML allows that.
std::string toml_key(std::string_view name) {
  constexpr std::string_view kBare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  return !name.empty() && name.find_first_not_of(kBare) == name.npos ? std::string(name) : json_string(name);
}

// A dotted key.
std::string toml_path(std::string_view key) {
  std::string out;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t end = std::min(key.find('.', at), key.size());
    out += (at == 0 ? "" : ".") + toml_key(key.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Converts a JSON value to TOML. TOML has no null: null members of objects are left out. The result is nullopt for a
// null in a list and for an integer beyond TOML's range.
std::optional<std::string> toml_of(simdjson::dom::element value) {
  using simdjson::dom::element_type;
  switch (value.type()) {
    case element_type::OBJECT: {
      std::string out;
      const simdjson::dom::object object = value.get_object();
      for (const auto field : object) {
        if (field.value.is_null()) continue;
        const auto inner = toml_of(field.value);
        if (!inner) return std::nullopt;
        out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", toml_key(field.key), *inner);
      }
      return out.empty() ? "{}" : "{ " + out + " }";
    }
    case element_type::ARRAY: {
      std::string out;
      const simdjson::dom::array array = value.get_array();
      for (const simdjson::dom::element item : array) {
        const auto inner = toml_of(item);
        if (!inner) return std::nullopt;
        out += (out.empty() ? "" : ", ") + *inner;
      }
      return "[" + out + "]";
    }
    case element_type::STRING:
      return json_string(value.get_string().value());
    case element_type::DOUBLE: {
      const std::string text = fmt::format("{}", value.get_double().value());
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    case element_type::INT64:
      return fmt::format("{}", value.get_int64().value());
    case element_type::BOOL:
      return value.get_bool().value() ? "true" : "false";
    default:
      return std::nullopt;
  }
}

std::optional<std::string> toml_of(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  if (parser.parse(simdjson::padded_string(json)).get(value) != simdjson::SUCCESS) return std::nullopt;
  return toml_of(value);
}

// Values of a config by their dotted keys.
using Config = std::map<std::string, std::string, std::less<>>;

// The values inside `key`, by the rest of their names.
Config inside(const Config& config, std::string_view key) {
  Config out;
  const std::string prefix = std::string(key) + ".";
  for (auto at = config.lower_bound(prefix); at != config.end() && at->first.starts_with(prefix); ++at)
    out.emplace(at->first.substr(prefix.size()), at->second);
  return out;
}

// True if `key` lies inside another key, not necessarily the preceding one: '-' sorts before '.'.
bool is_inside_another(const Config& config, std::string_view key) {
  for (std::size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1))
    if (config.contains(key.substr(0, dot))) return true;
  return false;
}

// A value together with values inside it that are given separately, as one table, because TOML does not allow the same
// table twice.
std::optional<std::string> toml_of(std::string_view json, const Config& apart) {
  if (apart.empty()) return toml_of(json);
  Config fields;
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(simdjson::padded_string(json)).get(object) == simdjson::SUCCESS)
    for (const auto field : object) fields.emplace(field.key, simdjson::minify(field.value));
  // models::Config treats such an object as one value. Values inside it replace this value.
  if (std::ranges::any_of(
          fields, [](const auto& field) { return field.first.empty() || field.first.find('.') != std::string::npos; }))
    fields.clear();
  for (const auto& [key, value] : apart) {
    const std::string first = key.substr(0, key.find('.'));
    if (first == key)
      fields.insert_or_assign(key, value);
    else
      fields.emplace(first, "{}");
  }
  std::string out;
  for (const auto& [key, value] : fields) {
    const Config more = inside(apart, key);
    if (value == "null" && more.empty()) continue;
    const auto inner = toml_of(value, more);
    if (!inner) return std::nullopt;
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", toml_key(key), *inner);
  }
  return out.empty() ? "{}" : "{ " + out + " }";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> values_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const RecipeKey& key : recipe_keys())
    if (!key.name.starts_with("report.") && !key.name.starts_with("control.") && key.name != "device.threads")
      out.emplace_back(key.name, key.text(recipe));
  if (recipe.data.train.size() > 1) out.emplace_back("data.train.weights", weights_text(recipe.data.train));
  for (const auto& [key, json] : recipe.model.config) out.emplace_back("model.config." + key, json);
  return out;
}

std::string to_text(const Recipe& recipe) {
  std::string out;
  for (const auto& [key, value] : values_of(recipe)) out += fmt::format("{} = {}\n", key, value);
  return out;
}

Recipe with_absolute_paths(Recipe recipe) {
  const auto absolute = [](auto& path) {
    if (!path.empty()) path = fs::absolute(path).lexically_normal().string();
  };
  for (auto* path :
       {&recipe.model.path, &recipe.adapter.path, &recipe.checkpoint.dir, &recipe.evaluation.prompts,
        &recipe.control.tls_cert, &recipe.control.tls_key, &recipe.control.tls_client_ca, &recipe.control.token_file})
    if (*path) absolute(**path);
  for (fs::path& path : recipe.memory.nvme) absolute(path);
  for (DataSource& source : recipe.data.train)
    for (std::string& pattern : source.files) absolute(pattern);
  for (std::string& pattern : recipe.data.validation) absolute(pattern);
  if (std::string& resume = recipe.checkpoint.resume; resume != "auto" && resume != "none") absolute(resume);
  return recipe;
}

std::string to_toml(const Recipe& recipe) {
  const Recipe whole = with_absolute_paths(recipe);
  const Recipe defaults = defaults_for(whole);
  std::string out;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string text = key.text(whole);
    if (!key.name.starts_with("report.") && text != key.text(defaults)) out += fmt::format("{} = {}\n", key.name, text);
  }
  const Config config(whole.model.config.begin(), whole.model.config.end());
  for (const auto& [key, json] : config) {
    if (is_inside_another(config, key)) continue;  // written with the other key
    const auto value = toml_of(json, inside(config, key));
    if (value) {
      out += fmt::format("model.config.{} = {}\n", toml_path(key), *value);
      continue;
    }
    // TOML has no null.
    out += fmt::format("# --set model.config.{} = {}\n", toml_path(key), json);
    for (const auto& [name, inner] : inside(config, key))
      out += fmt::format("# --set model.config.{}.{} = {}\n", toml_path(key), toml_path(name), inner);
  }
  return out;
}

}  // namespace strata::runtime
