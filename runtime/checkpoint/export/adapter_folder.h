#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage}, with what to do, if the folder is not one of peft's with its configuration.
void require_peft_folder(const std::filesystem::path& folder);
// Throws the same, and also Error{usage} if the folder has no safetensors.
void require_peft(const std::filesystem::path& folder);

// The model that the adapter was made for, a folder or a name on the Hub; empty if its config does not say.
std::string base_of_adapter(const std::filesystem::path& folder);

// If model.path is peft's folder of an adapter whose base model is a folder here, gives both their own keys. Returns a
// note about it, or nothing.
std::string take_base(Recipe& recipe);

// Takes the adapter's keys from adapter.path, a folder of peft's; keys that the recipe gives must agree with them.
// Returns the notes about the folder.
std::vector<std::string> take_peft_keys(Recipe& recipe, const models::Config& model);

}  // namespace strata::runtime
