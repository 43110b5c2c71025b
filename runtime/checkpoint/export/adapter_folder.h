#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage}, with what to do, if the folder is not a peft folder with a configuration.
void require_peft_folder(const std::filesystem::path& folder);
// Throws the same, and also Error{usage} if the folder has no safetensors.
void require_peft(const std::filesystem::path& folder);

// The model that the adapter was made for, a folder or a name on the Hub; empty if its config does not say.
std::string base_of_adapter(const std::filesystem::path& folder);

// The base model of a peft folder that is given as a model, if the base is a local folder: base_model_name_or_path,
// relative to the current folder or else to the adapter's.
std::optional<std::filesystem::path> base_folder_of(const std::filesystem::path& model);
// A note that the folder `adapter`, which was given as a model, is read with its base, and not with another folder that
// the same path leads to.
std::string note_of_base(const std::filesystem::path& adapter, const std::filesystem::path& base);
// If model.path is a peft folder, moves it to adapter.path and sets model.path to its base. Returns a note about this,
// or an empty string.
std::string take_base(Recipe& recipe);

// Takes the adapter's keys from adapter.path, a peft folder; keys that the recipe gives must agree with them. Returns
// the notes about the folder.
std::vector<std::string> take_peft_keys(Recipe& recipe, const models::Config& model);

// Assignments of the keys that describe the classifier's head in the adapter's files; none if there is no head, or if
// the base model is a classifier. Throws Error{usage} if the folder does not say what is classified.
std::vector<std::string> keys_of_head(const models::Config& base, const std::filesystem::path& adapter);

}  // namespace strata::runtime
