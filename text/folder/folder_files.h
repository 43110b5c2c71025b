#pragma once
// text/folder/ is what the other files of a Hugging Face directory say of its tokenizer: folder_files.h (here) reads
// them, folder_settings.h says what they mean, class_components.h what transformers' classes make of that, and
// vocabulary_files.h makes a tokenizer.json of a vocabulary alone. Open folder_settings.h first.

#include <filesystem>
#include <optional>

#include "text/template/values/value.h"

namespace strata::text {

// The files beside a tokenizer's own, each a JSON object; nullopt if there is no such file.
struct FolderFiles {
  std::filesystem::path folder;
  std::optional<jinja::Value> config;      // tokenizer_config.json
  std::optional<jinja::Value> map;         // special_tokens_map.json
  std::optional<jinja::Value> added;       // added_tokens.json
  std::optional<jinja::Value> model = {};  // config.json; nullopt also if it is broken, which concerns the model
};

// Throws Error{corrupt} for one that is no JSON object (but config.json), or is above 256 MiB.
FolderFiles read_folder_files(const std::filesystem::path& folder);

}  // namespace strata::text
