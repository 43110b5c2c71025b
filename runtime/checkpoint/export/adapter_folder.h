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
// A note that the adapter names a folder here as its base model, and that this is neither `given`, the model's path,
// nor `opened`, the folder that this leads to; empty if there is no such folder.
std::string note_of_other_base(const std::filesystem::path& adapter, const std::filesystem::path& given,
                               const std::filesystem::path& opened, const models::Config& model);
// Returns the base if the recipe's model.path is such a folder and the recipe has no adapter.path. Throws Error{usage}
// if the recipe also says that there is no adapter.
std::optional<std::filesystem::path> base_of_recipe(const Recipe& recipe);

// The adapter's keys as a peft folder has them, and notes about the folder.
struct PeftKeys {
  Recipe::AdapterKeys keys;
  std::vector<std::string> notes;
};
// Throws Error{usage} if keys that the recipe gives do not agree with the folder.
PeftKeys read_peft_keys(const Recipe& recipe, const std::filesystem::path& folder, const models::Config& model);

// Assignments of the keys that describe the classifier's head in the adapter's files; none if there is no head, or if
// the base model is a classifier. Throws Error{usage} if the folder does not say what is classified.
std::vector<std::string> keys_of_head(const models::Config& base, const std::filesystem::path& adapter);

}  // namespace strata::runtime
