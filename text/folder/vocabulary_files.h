#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "text/folder/folder_settings.h"

namespace strata::text {

// The tokenizer.json that transformers would make from `file`, a vocab.json (with merges.txt next to it) or a
// vocab.txt, for the class in `settings`. It has no post-processor (see template_of_class). Throws Error{usage}, with
// the command to run, if the class is not BERT's, GPT-2's, RoBERTa's, GPT-NeoX's or Qwen2's.
std::string tokenizer_json_of(const std::filesystem::path& file, std::string_view vocabulary,
                              const FolderSettings& settings);

}  // namespace strata::text
