#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/toml_file.h"

namespace strata::runtime {

inline constexpr std::string_view kConfigPrefix = "model.config.";

// One key and the value that a recipe or the command line gives it.
struct Assignment {
  std::string key;
  const toml::node* node;  // of the table that was read
  std::string where;       // "recipe.toml, line 3" or "--set"
  bool null = false;       // JSON's null, below model.config
};

// Whether a table is the value of this key, whose names may have dots.
bool takes_table(std::string_view key);

// Those of a recipe's file: tables become dotted keys, unless a key takes a table; below model.config an inline table
// stays one value, which replaces an object whole.
std::vector<Assignment> assignments_of(const toml::table& recipe, const std::string& file);

// Those of one --set, and the table that owns the values. The value is TOML, and what is not TOML is a string; an
// inline table sets several keys. Throws Error{usage} if it is no KEY=VALUE.
struct Set {
  toml::table table;
  std::vector<Assignment> assignments;
};
Set parse_set(const std::string& set);

}  // namespace strata::runtime
