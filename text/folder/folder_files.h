#pragma once
// text/folder/ reads the files of a Hugging Face directory that describe its tokenizer, except the tokenizer's own
// file: folder_files.h (here) reads them, folder_settings.h interprets them, and class_components.h has what
// transformers' classes derive from the settings: components, and a whole tokenizer.json from a vocabulary alone. Open
// folder_settings.h first.

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/files/mapped_file.h"
#include "text/template/values/value.h"

namespace strata::text {

// The files next to the tokenizer's own file, each a JSON object; nullopt if a file does not exist.
struct FolderFiles {
  std::filesystem::path folder;
  std::optional<jinja::Value> config;      // tokenizer_config.json
  std::optional<jinja::Value> map;         // special_tokens_map.json
  std::optional<jinja::Value> added;       // added_tokens.json
  std::optional<jinja::Value> model = {};  // config.json; also nullopt if it is broken, which loading the model reports
};

// The complete content of a file, as text. Throws Error{corrupt} above 256 MiB.
std::string_view text_of(const MappedFile& file);

// Throws Error{corrupt} for a file (other than config.json) that is not a JSON object, or is larger than 256 MiB.
FolderFiles read_folder_files(const std::filesystem::path& folder);

}  // namespace strata::text
