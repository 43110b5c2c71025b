#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/folder/folder_files.h"
#include "text/tokenizer.h"

namespace strata::text {

// The settings in the files next to a tokenizer, as transformers 5 reads them: tokenizer_config.json,
// special_tokens_map.json (ignored if tokenizer_config.json has added_tokens_decoder), added_tokens.json, and the model
// type in config.json.
struct FolderSettings {
  std::string tokenizer_class;  // without "Fast"; empty: the class that uses tokenizer.json unchanged
  std::string model_type;
  bool is_given = false;  // at least one of the files exists
  // bos_token and so on, with the properties that their names imply, followed by the tokens without a name
  // (additional_special_tokens).
  std::vector<std::pair<std::string, AddedToken>> named;
  std::vector<std::string> nameless;  // keys that are null
  std::vector<AddedToken> extra;
  std::vector<AddedToken> listed;  // from added_tokens_decoder, otherwise from added_tokens.json, by ascending id
  bool has_decoder = false;        // `listed` comes from added_tokens_decoder
  std::optional<bool> add_bos, add_eos, prefix_space, legacy, lowercase, strip_accents, splits_chinese;
  bool truncates_left = false;  // truncation_side
  bool splits_special = false;  // split_special_tokens: read special tokens in a text as plain text

  const AddedToken* token(std::string_view key) const;
  // Whether the key is null in the files. Then there is no such token, not even the class's default or a token known by
  // its text.
  bool is_null(std::string_view key) const;
  // The text of a named token. If the files do not name it, the class's default; empty if there is none.
  std::string token_text(std::string_view key) const;
  bool is_bert() const { return tokenizer_class == "BertTokenizer"; }
  bool is_llama() const { return tokenizer_class == "LlamaTokenizer" || tokenizer_class == "CodeLlamaTokenizer"; }
  // Whether the class rebuilds GPT-2's pre-tokenizer.
  bool is_byte_level() const;
  // Whether the class renumbers SentencePiece's pieces.
  bool is_renumbered() const {
    return tokenizer_class == "XLMRobertaTokenizer" || tokenizer_class == "CamembertTokenizer";
  }
  // Whether the class puts its own template around a text.
  bool makes_template() const { return is_bert() || is_renumbered() || tokenizer_class == "RobertaTokenizer"; }
};

// Throws Error{corrupt} for malformed tokens. read_folder_settings() also throws what read_folder_files() throws.
FolderSettings settings_of(const FolderFiles& files);
FolderSettings read_folder_settings(const std::filesystem::path& folder);

// A command line that has transformers read the tokenizer in `folder` and save it there as a tokenizer.json.
std::string save_command(const std::filesystem::path& folder);

// Combines `own` (the tokens of the tokenizer's own file, with ids) with those that the folder adds. If two have the
// same text, the first counts. A new token gets its id from the vocabulary, or the next free id. `size`: the number of
// vocabulary entries.
std::vector<AddedToken> with_added_tokens(std::vector<AddedToken> own, const FolderSettings& settings,
                                          const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of,
                                          std::uint32_t size, std::vector<std::string>& notes);

}  // namespace strata::text
