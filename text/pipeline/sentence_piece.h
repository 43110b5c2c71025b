#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace strata::text {

// What the configuration beside a tokenizer says, where it does.
struct FolderOptions {
  std::optional<std::string> eos;
  std::optional<bool> add_bos, add_eos;
  bool cuts_front = false;  // truncation_side
};

// A SentencePiece model (`tokenizer.model`), by the sentencepiece library. With add_special, `<s>` goes before and
// `</s>` after it if the options say so.
std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderOptions& options);

}  // namespace strata::text
