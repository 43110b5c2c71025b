#pragma once
#include <string>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Every key that must be the same on all ranks, one "key = value" a line in a fixed order (report.*, control.* and
// device.threads are left out; the weights of several sources are a line of their own): what ranks compare, by hash,
// before step 1.
std::string to_text(const Recipe& recipe);

// The recipe as a file that load_recipe reads: keys that are not at their default, paths absolute, without report.*.
std::string to_toml(const Recipe& recipe);

}  // namespace strata::runtime
