#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
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

constexpr std::int64_t kMany = std::int64_t{1} << 40;  // above any sensible count, and small multiples of it fit
// Below this, a float among the step's scalars could become zero.
constexpr double kTiny = 1e-30;
constexpr double kHuge = std::numeric_limits<float>::max();

inline RecipeKey::Most max_float() {
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
template <typename T>
std::string text_or_none(const std::vector<T>& list) {
  return list.empty() ? "none" : text_of_list(list);
}

// These functions read a value for a key, or return nullopt if the key does not allow it. store() gives the result of
// a key's `set`.
template <typename T, typename Member>
bool store(std::optional<T> value, Member& member) {
  if (value) member = *std::move(value);
  return value.has_value();
}
inline std::optional<std::int64_t> integer_in(const Value& v, std::int64_t least, std::int64_t most) {
  const auto* i = std::get_if<std::int64_t>(&v.value);
  return i && *i >= least && *i <= most ? std::optional(*i) : std::nullopt;
}
// `below`: `most` itself is not allowed.
inline std::optional<double> number_in(const Value& v, double least, double most, bool below = false) {
  const auto x = number_of(v);
  return x && *x >= least && *x <= most && !(below && *x == most) ? x : std::nullopt;
}
// A text or a list of them, none of which is empty.
inline std::optional<std::vector<std::string>> names_in(const Value& v) {
  auto texts = texts_of(v);
  if (texts && std::ranges::any_of(*texts, &std::string::empty)) texts.reset();
  return texts;
}
// A list whose items `item_in` reads.
template <typename ItemIn>
auto list_in(const Value& v, ItemIn item_in) -> std::optional<std::vector<typename decltype(item_in(v))::value_type>> {
  const auto* list = std::get_if<std::vector<Value>>(&v.value);
  if (!list) return std::nullopt;
  std::vector<typename decltype(item_in(v))::value_type> out;
  for (const Value& item : *list) {
    const auto read = item_in(item);
    if (!read) return std::nullopt;
    out.push_back(*read);
  }
  return out;
}
template <typename T>
std::optional<T> named_in(const Value& v, const Choices<T>& choices) {
  const auto* text = std::get_if<std::string>(&v.value);
  for (const auto& [known, value] : choices)
    if (text && known == *text) return value;
  return std::nullopt;
}
// The reverse of named_in().
template <typename T, typename Member>
std::optional<std::string> name_for(const Member& member, const Choices<T>& choices) {
  for (const auto& [known, value] : choices)
    if (value == member) return json_string(known);
  return std::nullopt;
}

// A key that is written as its value and has only supported values.
template <typename At, typename Set>
RecipeKey plain(std::string name, std::string allowed, std::string meaning, At at, Set set) {
  auto text = [at](const Recipe& recipe) { return text_of(at(recipe)); };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text, {}};
}

// A maximum that is above any sensible count, which `allowed` does not mention.
inline bool is_open(std::int64_t most) {
  return most == kMany || most == std::numeric_limits<std::int64_t>::max();
}
inline std::string integers(std::int64_t least, std::int64_t most) {
  return is_open(most) ? fmt::format("an integer >= {}", least) : fmt::format("an integer from {} to {}", least, most);
}

template <typename At>
RecipeKey integer(std::string name, std::int64_t least, std::int64_t most, At at, std::string meaning) {
  auto set = [least, most, at](Recipe& recipe, const Value& v, const fs::path&) {
    return store(integer_in(v, least, most), at(recipe));
  };
  RecipeKey key = plain(std::move(name), integers(least, most), std::move(meaning), at, set);
  if (is_open(most)) key.most = most_of(most);
  return key;
}

// An integer from 1, or one of the words.
template <typename T, typename At>
RecipeKey integer_or(std::string name, Choices<T> words, std::int64_t most, At at, std::string meaning) {
  std::string allowed;
  for (const auto& [word, value] : words) allowed += (allowed.empty() ? "" : ", ") + json_string(word);
  auto set = [words, most, at](Recipe& recipe, const Value& v, const fs::path&) {
    return store(integer_in(v, 1, most), at(recipe)) || store(named_in(v, words), at(recipe));
  };
  auto text = [words, at](const Recipe& recipe) { return name_for(at(recipe), words).value_or(text_of(at(recipe))); };
  RecipeKey key{std::move(name), allowed + " or " + integers(1, most), std::move(meaning), set, text};
  if (is_open(most)) key.most = most_of(most);
  return key;
}

template <typename At>
RecipeKey number(std::string name, double least, double most, std::string allowed, At at, std::string meaning,
                 bool below = false) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path&) {
    return store(number_in(v, least, most, below), at(recipe));
  };
  RecipeKey key = plain(std::move(name), std::move(allowed), std::move(meaning), at, set);
  if (most == kHuge) key.most = max_float();
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
    return store(named_in(v, choices), at(recipe));
  };
  auto text = [choices, at](const Recipe& recipe) { return name_for(at(recipe), choices).value_or("none"); };
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
  const auto texts = names_in(v);
  if (!texts) return std::nullopt;
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
    if constexpr (std::is_same_v<decltype(at(recipe)), std::vector<fs::path>&>)
      return store(resolved(name, v, folder, user_path), at(recipe));
    else
      return store(patterns_of(name, v, folder), at(recipe));
  };
  auto text = [at](const Recipe& recipe) { return text_of_list(at(recipe)); };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text};
}

template <typename At>
RecipeKey names(std::string name, std::string allowed, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) { return store(names_in(v), at(recipe)); };
  auto text = [at](const Recipe& recipe) { return text_or_none(at(recipe)); };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text};
}

template <typename At>
RecipeKey size(std::string name, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) {
    if (const auto* i = std::get_if<std::int64_t>(&v.value); i && *i > 0) {
      at(recipe) = static_cast<std::uint64_t>(*i);
      return true;
    }
    const auto* text = std::get_if<std::string>(&v.value);
    return store(text ? parse_size(*text) : std::nullopt, at(recipe));
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
