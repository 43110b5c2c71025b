#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {

// Implements --adapter FOLDER of eval, generate and predict, which sets adapter.path. Throws Error{usage} if the recipe
// names another folder, or a checkpoint that would be evaluated without it.
void require_sole_adapter(const std::filesystem::path& folder, const runtime::LoadedRecipe& loaded);

// If MODEL of generate or predict is a peft folder whose adapter has its base model in a folder on this machine, uses
// the folder as --adapter and the base as MODEL, and prints a note. Collective; throws AgreedError.
void take_base_of(std::filesystem::path& model, std::optional<std::filesystem::path>& adapter,
                  std::vector<std::string>& sets, comm::World& world);

}  // namespace strata::launcher
