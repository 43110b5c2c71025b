#pragma once
#include <filesystem>

#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// Implements --adapter FOLDER of eval, generate and predict, which sets adapter.path. Throws Error{usage} if the recipe
// names another folder, or a checkpoint that would be evaluated without it.
void require_sole_adapter(const std::filesystem::path& folder, const runtime::Recipe& recipe);

}  // namespace strata::launcher
