#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "text/folder/folder_settings.h"

namespace strata::text {

// XXH3-64, 16 hex digits, of what tokens depend on: the bytes of `file` (one of kTokenizerFiles), and what `settings`
// change of it: components of the class, added tokens. A vocabulary alone counts as the tokenizer.json that is made of
// it. If the folder changes nothing, it is the hash of the file. Throws as load_tokenizer does.
std::string tokenizer_hash(const std::filesystem::path& file, std::string_view bytes, const FolderSettings& settings);

// That of the file as it lies in its folder; the hash of its bytes alone if no tokenizer can be read from it.
std::string tokenizer_hash(const std::filesystem::path& file);

}  // namespace strata::text
