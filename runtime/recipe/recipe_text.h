#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Every key that must be equal on all ranks, with its value, in a fixed order. report.*, control.* and device.threads
// are left out; the weights of several sources have a key of their own.
std::vector<std::pair<std::string, std::string>> values_of(const Recipe& recipe);
// values_of(), one "key = value" per line. Ranks compare its hash before step 1.
std::string to_text(const Recipe& recipe);

// The recipe as a file for load_recipe: keys that differ from their defaults, absolute paths, without report.*.
std::string to_toml(const Recipe& recipe);

}  // namespace strata::runtime
