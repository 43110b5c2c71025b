#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/toml_file.h"

namespace strata::runtime {

inline constexpr std::string_view kConfigPrefix = "model.config.";

// A key and the value that a recipe or the command line gives it.
struct Assignment {
  std::string key;
  const toml::node* node;  // in the table that was read
  std::string where;       // "recipe.toml, line 3" or "--set"
  std::string json = {};   // only below model.config, instead of the node: what TOML does not have (null, {"a": 1})
};

// Whether a table is this key's value; the names in such a table may contain dots.
bool takes_table(std::string_view key);

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
