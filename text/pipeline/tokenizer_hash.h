#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "text/folder/folder_settings.h"

namespace strata::text {

// XXH3-64, 16 hex digits, of everything that determines tokens: the bytes of `file` (one of kTokenizerFiles), and what
// `settings` change, such as the class's components and added tokens. A vocabulary counts as the tokenizer.json that is
// made from it. If the settings change nothing, this is the hash of the file. Throws as load_tokenizer does.
std::string tokenizer_hash(const std::filesystem::path& file, std::string_view bytes, const FolderSettings& settings);

// The hash for a file in its folder; the hash of the bytes alone if the file does not contain a tokenizer.
std::string tokenizer_hash(const std::filesystem::path& file);

}  // namespace strata::text
