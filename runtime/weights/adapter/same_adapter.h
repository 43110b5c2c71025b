#pragma once
#include <optional>
#include <string_view>

#include "models/adapter.h"
#include "models/files/config.h"
#include "models/objective.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// True if two adapters train the same tensors of a model and compute the same from them, although their keys may be
// written differently: "all-linear" and the list of all linear layers, or lists in another order. Throws what
// models::make_model throws.
bool is_same_adapter(const models::Config& config, std::optional<models::Objective> objective, const models::Adapter& a,
                     const models::Adapter& b);

// Throws Error{usage} if a recipe whose adapter no folder describes restricts a pattern of target modules to layers: as
// in peft, layers restrict only a list.
void require_listed_targets(const Recipe& recipe);

// Throws Error{usage} if an adapter key that the recipe gives means another adapter than `said`, the keys of the folder
// said.path.
void require_same_adapter(const Recipe& recipe, const Recipe::AdapterKeys& said, const models::Config& config);

// True if a key chooses an adapter's tensors by name. Different texts of such a key may mean the same tensors.
bool chooses_modules(std::string_view key);

}  // namespace strata::runtime
