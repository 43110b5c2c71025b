#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/recipe.h"
#include "runtime/recipe/user_path.h"
#include "runtime/recipe/value.h"

// The kinds of keys: each function makes a RecipeKey from a name, the allowed values, a member and a meaning. `at` is
// STRATA_AT(member), which returns that member of a const or mutable Recipe.
namespace strata::runtime::kinds {

namespace fs = std::filesystem;
using Value = RecipeValue;
template <typename T>
using Choices = std::vector<std::pair<std::string_view, T>>;

constexpr std::int64_t kMany = std::int64_t{1} << 40;  // above any sensible count; small multiples fit
// Below this, a float among the step's scalars could become zero.
constexpr double kTiny = 1e-30;
constexpr double kHuge = std::numeric_limits<float>::max();

inline RecipeKey::Most most_float() {
  return {kHuge, fmt::format("{:.8g}", kHuge)};
}
template <typename T>
RecipeKey::Most most_of(T count) {
  return {static_cast<double>(count), fmt::format("{}", count)};
}

// Accessor of a member, for both const and mutable recipes.
#define STRATA_AT(member)     \
  [](auto& recipe) -> auto& { \
    return recipe.member;     \
  }

template <typename T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <typename T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}
template <>
inline std::string text_of(const std::string& value) {
  return json_string(value);
}
template <>
inline std::string text_of(const fs::path& value) {
  return json_string(value.string());
}
template <typename T>
std::string text_of_list(const std::vector<T>& list) {
  std::string out = "[";
  for (const T& item : list) out += (out.size() > 1 ? ", " : "") + text_of(item);
  return out + "]";
}

// A key that is written as its value and has only supported values.
template <typename At, typename Set>
RecipeKey plain(std::string name, std::string allowed, std::string meaning, At at, Set set) {
  auto text = [at](const Recipe& recipe) { return text_of(at(recipe)); };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text, {}};
}

template <typename At>
RecipeKey integer(std::string name, std::int64_t least, std::int64_t most, At at, std::string meaning) {
  const bool open = most == kMany || most == std::numeric_limits<std::int64_t>::max();
  std::string allowed =
      open ? fmt::format("an integer >= {}", least) : fmt::format("an integer from {} to {}", least, most);
  auto set = [least, most, at](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* i = std::get_if<std::int64_t>(&v.value);
    if (!i || *i < least || *i > most) return false;
    at(recipe) = *i;
    return true;
  };
  RecipeKey key = plain(std::move(name), std::move(allowed), std::move(meaning), at, set);
  if (open) key.most = most_of(most);
  return key;
}

// `below`: `most` itself is not allowed.
template <typename At>
RecipeKey number(std::string name, double least, double most, std::string allowed, At at, std::string meaning,
                 bool below = false) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path&) {
    const auto x = number_of(v);
    if (!x || *x < least || *x > most || (below && *x == most)) return false;
    at(recipe) = *x;
    return true;
  };
  RecipeKey key = plain(std::move(name), std::move(allowed), std::move(meaning), at, set);
  if (most == kHuge) key.most = most_float();
  return key;
}

inline std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + json_string(names[i]);
  }
  return out;
}

template <typename T, typename At>
RecipeKey choice(std::string name, Choices<T> choices, At at, std::string meaning) {
  std::vector<std::string> names;
  for (const auto& [text, value] : choices) names.emplace_back(text);
  auto set = [choices, at](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text) return false;
    for (const auto& [known, value] : choices) {
      if (known != *text) continue;
      at(recipe) = value;
      return true;
    }
    return false;
  };
  auto text = [choices, at](const Recipe& recipe) {
    for (const auto& [known, value] : choices) {
      if (value == at(recipe)) return json_string(known);
    }
    return std::string("none");
  };
  return {std::move(name), listed(names), std::move(meaning), set, text};
}

// The system would cut a path at a zero byte.
inline void refuse_zero_bytes(const std::string& key, const std::string& path) {
  if (path.find('\0') != std::string::npos)
    fail(Exit::usage, "{} = {}: a path cannot contain a zero byte", key, json_string(path));
}

template <typename At>
RecipeKey path(std::string name, At at, std::string meaning) {
  auto set = [at, name](Recipe& recipe, const Value& v, const fs::path& folder) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text || text->empty()) return false;
    refuse_zero_bytes(name, *text);
    at(recipe) = user_path(*text, folder);
    return true;
  };
  return plain(std::move(name), "a path", std::move(meaning), at, set);
}

// A string or a list of strings, each turned into a path or glob by `make` relative to `folder`; nullopt if the value
// is neither.
template <typename Make>
auto resolved(const std::string& key, const Value& v, const fs::path& folder, Make make)
    -> std::optional<std::vector<decltype(make("", folder))>> {
  const auto texts = texts_of(v);
  if (!texts || std::any_of(texts->begin(), texts->end(), [](const auto& t) { return t.empty(); })) return std::nullopt;
  std::vector<decltype(make("", folder))> out;
  for (const std::string& text : *texts) {
    refuse_zero_bytes(key, text);
    out.push_back(make(text, folder));
  }
  return out;
}
inline std::optional<std::vector<std::string>> patterns_of(const std::string& key, const Value& v,
                                                           const fs::path& folder) {
  return resolved(key, v, folder, user_pattern);
}

template <typename At>
RecipeKey paths(std::string name, std::string allowed, At at, std::string meaning) {
  auto set = [at, name](Recipe& recipe, const Value& v, const fs::path& folder) {
    if constexpr (std::is_same_v<decltype(at(recipe)), std::vector<fs::path>&>) {
      auto list = resolved(name, v, folder, user_path);
      if (list) at(recipe) = std::move(*list);
      return list.has_value();
    } else {
      auto list = patterns_of(name, v, folder);
      if (list) at(recipe) = std::move(*list);
      return list.has_value();
    }
  };
  return {std::move(name),
          std::move(allowed),
          std::move(meaning),
          set,
          [at](const Recipe& recipe) { return text_of_list(at(recipe)); },
          {}};
}

template <typename At>
RecipeKey size(std::string name, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) {
    if (const auto* i = std::get_if<std::int64_t>(&v.value); i && *i > 0) {
      at(recipe) = static_cast<std::uint64_t>(*i);
      return true;
    }
    const auto* text = std::get_if<std::string>(&v.value);
    const auto bytes = text ? parse_size(*text) : std::nullopt;
    if (bytes) at(recipe) = *bytes;
    return bytes.has_value();
  };
  RecipeKey key =
      plain(std::move(name), "a size above 0: \"2GiB\", \"1.5GB\" or an integer of bytes", std::move(meaning), at, set);
  key.most = RecipeKey::Most{kMaxByteCount, fmt::format("{}TiB", kMaxByteCount / 0x1p40)};
  return key;
}

template <typename At>
RecipeKey flag(std::string name, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* on = std::get_if<bool>(&v.value);
    if (on) at(recipe) = *on;
    return on != nullptr;
  };
  return plain(std::move(name), "true or false", std::move(meaning), at, set);
}

template <typename At>
RecipeKey flag_or_auto(std::string name, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    const auto* on = std::get_if<bool>(&v.value);
    if (on)
      at(recipe) = *on;
    else
      at(recipe) = std::nullopt;
    return on != nullptr || (text && *text == "auto");
  };
  auto text = [at](const Recipe& recipe) { return at(recipe) ? text_of(*at(recipe)) : json_string("auto"); };
  return {std::move(name), "\"auto\", true or false", std::move(meaning), set, text, {}};
}

}  // namespace strata::runtime::kinds
