#pragma once
#include <string>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Every key that must be equal on all ranks, one "key = value" per line in a fixed order. Ranks compare its hash before
// step 1. report.*, control.* and device.threads are left out; the weights of several sources have a line of their own.
std::string to_text(const Recipe& recipe);

// The recipe as a file for load_recipe: keys that differ from their defaults, absolute paths, without report.*.
std::string to_toml(const Recipe& recipe);

}  // namespace strata::runtime
