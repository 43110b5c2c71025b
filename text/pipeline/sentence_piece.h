#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "text/folder/folder_settings.h"
#include "text/tokenizer.h"

namespace strata::text {

// A SentencePiece model (`tokenizer.model`), run by the sentencepiece library. The ids are those of the class that the
// settings name (XLM-RoBERTa and CamemBERT renumber the file's), and added tokens are cut out first. Throws
// Error{usage} for a sentencepiece.bpe.model whose class is another or unknown.
std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderSettings& settings);

}  // namespace strata::text
