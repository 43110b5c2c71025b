#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "text/folder/folder_settings.h"

namespace strata::text {

// The tokenizer.json that transformers makes of `file`, a vocab.json with merges.txt beside it or a vocab.txt, by the
// class that `settings` name; without a post-processor (template_of_class). Throws Error{usage} if the class is none of
// BERT's, GPT-2's, RoBERTa's, GPT-NeoX's and Qwen2's, with what to run.
std::string tokenizer_json_of(const std::filesystem::path& file, std::string_view vocabulary,
                              const FolderSettings& settings);

}  // namespace strata::text
