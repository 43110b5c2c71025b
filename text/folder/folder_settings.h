#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/added_token.h"
#include "text/folder/folder_files.h"
#include "text/text_template.h"

namespace strata::text {

// What the files beside a tokenizer say of it, as transformers 5 reads them: tokenizer_config.json,
// special_tokens_map.json (which counts if the former has no added_tokens_decoder), added_tokens.json, and the model's
// type in config.json.
struct FolderSettings {
  std::string tokenizer_class;  // of transformers, without "Fast"; empty: the one that takes tokenizer.json as it is
  std::string model_type;
  bool is_given = false;  // there is at least one of the files
  // bos_token and so on, with what their names say; then those without a name (additional_special_tokens).
  std::vector<std::pair<std::string, AddedToken>> named;
  std::vector<std::string> nameless;  // keys that are null
  std::vector<AddedToken> extra;
  std::vector<AddedToken> listed;  // added_tokens_decoder, else added_tokens.json, by rising id
  bool has_decoder = false;        // the former
  std::optional<bool> add_bos, add_eos, prefix_space, legacy, lowercase, strip_accents, splits_chinese;
  bool cuts_front = false;      // truncation_side
  bool splits_special = false;  // split_special_tokens: special tokens in a text are plain text

  const AddedToken* token(std::string_view key) const;
  // Named as null: there is none then, not even the class's own or one that is known by its text.
  bool is_null(std::string_view key) const;
  // The text of a named token; that which the class has by itself if the files do not name it; empty if there is none.
  std::string token_text(std::string_view key) const;
  bool is_bert() const { return tokenizer_class == "BertTokenizer"; }
  bool is_llama() const { return tokenizer_class == "LlamaTokenizer" || tokenizer_class == "CodeLlamaTokenizer"; }
  // Classes that make GPT-2's pre-tokenizer anew.
  bool is_byte_level() const;
  // Classes that number SentencePiece's pieces anew.
  bool is_renumbered() const {
    return tokenizer_class == "XLMRobertaTokenizer" || tokenizer_class == "CamembertTokenizer";
  }
  // Classes that put a template of their own around a text.
  bool makes_template() const { return is_bert() || is_renumbered() || tokenizer_class == "RobertaTokenizer"; }
};

// Throws Error{corrupt} for tokens that are none; of a folder also as read_folder_files does.
FolderSettings settings_of(const FolderFiles& files);
FolderSettings read_folder_settings(const std::filesystem::path& folder);

// A command line that makes transformers read the tokenizer in `folder` and write it there as a tokenizer.json.
std::string save_command(const std::filesystem::path& folder);

// `own` (of the tokenizer's own file, with its ids) and what the folder adds: of the same text the first counts, and a
// new one has the id of the vocabulary, or the next. `size`: entries of the vocabulary.
std::vector<AddedToken> with_added_tokens(std::vector<AddedToken> own, const FolderSettings& settings,
                                          const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of,
                                          std::uint32_t size, std::vector<std::string>& remarks);

}  // namespace strata::text
