#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/value.h"

namespace strata::runtime {

// toml++ 3.3 fails an assertion on some malformed texts (`[[` before a control character) that it should report as
// errors.
struct TomlAssertion {};
[[noreturn]] inline void toml_assertion_failed() {
  throw TomlAssertion{};
}
}  // namespace strata::runtime
#undef NDEBUG  // NDEBUG would disable toml++'s assertions, and these texts would be undefined behaviour
#define TOML_ASSERT(expr) (static_cast<bool>(expr) ? static_cast<void>(0) : ::strata::runtime::toml_assertion_failed())
#include <toml++/toml.h>

namespace strata::runtime {

// Throws Error{usage} for a dotted key of more than a hundred parts, which makes toml++ overflow the stack, and for a
// string with equally many dots that has nothing but letters between them.
void refuse_deep_keys(std::string_view text, std::string_view what);

// Reads a file of at most 1 MiB. `what` names its kind ("recipe") at the start of every error. Throws Error{usage} with
// path, line and column.
toml::table read_toml(const std::filesystem::path& path, std::string_view what);

// A value as errors show it, at most 200 characters.
std::string shown(const toml::node& node);
// The value without TOML types; nullopt for dates and times, which no key takes.
std::optional<RecipeValue> value_of(const toml::node& node);
// The value as JSON, for model.config. Throws Error{usage} naming the key if JSON has no such value.
std::string json_of(const toml::node& node, const std::string& key);

inline constexpr std::string_view kConfigPrefix = "model.config.";

// A key and the value that a recipe or the command line gives it.
struct Assignment {
  std::string key;
  const toml::node* node;  // the node in the table that was read
  std::string where;       // "recipe.toml, line 3" or "--set"
  std::string json = {};   // only below model.config, instead of the node: what TOML does not have (null, {"a": 1})
};

// True if the key takes a table as its value. The names in such a table may contain dots.
bool takes_table(std::string_view key);

// A key as TOML reads it, with the dots between its parts: layers.1.mlp of "layers.1".mlp. Text that is no key of TOML
// stays as it is.
std::string unquoted_key(const std::string& key);

// The assignments of a recipe file. Tables become dotted keys, unless a key takes a table. Below model.config an inline
// table stays one value and replaces the whole object.
std::vector<Assignment> assignments_of(const toml::table& recipe, const std::string& file);

// The assignments of one --set, and the table that owns their values. The value is TOML, or a string if it is not valid
// TOML (below model.config, null and what begins as an object of JSON are JSON); an inline table sets several keys.
// Throws Error{usage} if `set` is not KEY=VALUE.
struct Set {
  toml::table table;
  std::vector<Assignment> assignments;
};
Set parse_set(const std::string& set);

}  // namespace strata::runtime
