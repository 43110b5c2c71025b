#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/folder/folder_settings.h"
#include "text/json/json.h"
#include "text/tokenizer.h"

namespace strata::text {

// The components of a tokenizer.json that the class rebuilds from the settings: JSON for the "normalizer" or the
// "pre_tokenizer" if it differs from `own`. Adds a note for the user.
std::optional<std::string> normalizer_of_class(const FolderSettings& settings, const Json& own,
                                               std::vector<std::string>& notes);
std::optional<std::string> pre_tokenizer_of_class(const FolderSettings& settings, const Json& own,
                                                  std::vector<std::string>& notes);

// The components that transformers 5 builds for a class to replace those in tokenizer.json, as JSON; "null" if it
// builds none; nullopt if it keeps those of the file.
struct ClassComponents {
  std::optional<std::string> normalizer, pre_tokenizer;
};
ClassComponents components_of_class(const FolderSettings& settings);

// A note if transformers 4 and 5 use different components. Version 4 and Strata use the file's components, and version
// 5 replaces them for some classes. The arguments are the components in use.
std::optional<std::string> note_on_components(const FolderSettings& settings, const std::optional<Json>& normalizer,
                                              const std::optional<Json>& pre_tokenizer);

// The template that the class puts around a text, for folders without a tokenizer.json that has one.
TextTemplate template_of_class(const FolderSettings& settings,
                               const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of);

// The tokenizer.json that transformers would make from `file`, a vocab.json (with merges.txt next to it) or a
// vocab.txt, for the class in `settings`. It has no post-processor (see template_of_class). Throws Error{usage}, with
// the command to run, for classes other than BERT's, GPT-2's, RoBERTa's, GPT-NeoX's and Qwen2's.
std::string tokenizer_json_of(const std::filesystem::path& file, std::string_view vocabulary,
                              const FolderSettings& settings);

}  // namespace strata::text
