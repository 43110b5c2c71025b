#pragma once
// text/pipeline/ runs a tokenizer from end to end. load.cc reads a tokenizer.json and refuses unsupported components by
// name; it also makes the tokenizer `byte`. Pipeline runs the stages. The stages around the model are in
// added_tokens.h, post_processor.cc and decoder.cc. sentence_piece.cc reads a tokenizer.model.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/folder/folder_settings.h"
#include "text/json/json.h"
#include "text/pipeline/added_tokens.h"
#include "text/split/pre_tokenizers.h"
#include "text/subwords/model.h"
#include "text/subwords/vocabulary.h"
#include "text/tokenizer.h"
#include "text/unicode/normalizer.h"

namespace strata::text {

// The "decoder" of a tokenizer.json: rewrites a list of tokens so that their concatenation is the text. Immutable.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

// Builds the decoders; sequences are flattened. Throws Error{usage} if a component is not supported.
std::vector<Decoder> make_decoders(const Json& json);

// The tokenizer in a tokenizer.json. It cuts out added tokens, normalizes the text between them, splits it into pieces,
// and looks up each piece in the model. Gives the same ids as the tokenizers library. Ignores "truncation" and
// "padding", which concern batches, not text.
class Pipeline final : public Tokenizer {
 public:
  // settings: those of the files next to it. `vocabulary_only`: `json` was made from a vocabulary, and the class
  // provides the template.
  static std::unique_ptr<Pipeline> parse(std::string_view json, const std::string& file, std::string name,
                                         std::string hash, const FolderSettings& settings,
                                         bool vocabulary_only = false);

  std::uint32_t vocab_size() const override { return vocab_size_; }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override;
  std::vector<std::uint32_t> special_ids() const override;
  std::unique_ptr<Workspace> workspace() const override;
  using Tokenizer::encode;
  void encode(std::string_view text, bool add_special, Workspace& workspace,
              std::vector<std::uint32_t>& out) const override;
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override;
  TextCut safe_cut(std::string_view text, std::size_t limit) const override;

 private:
  struct Buffers;
  class StageSink;

  Pipeline(const Json& json, std::string name, std::string hash, const FolderSettings& settings, bool vocabulary_only);
  void read_added(const Json& json, const FolderSettings& settings);
  void compare_template(const FolderSettings& settings);
  bool may_cut_at(char separator) const;
  // Finds out whether spaces become a mark that alone separates words. If so, the vocabulary decides whether a text may
  // be cut before the mark.
  void find_space_mark(const Json& model, const std::optional<Json>& normalizer,
                       const std::optional<Json>& pre_tokenizer);
  void encode_normalized(std::string_view text, bool first, Buffers& buffers, std::vector<std::uint32_t>& out) const;

  std::vector<AddedToken> added_;
  Vocabulary added_vocabulary_;
  std::vector<bool> special_;  // indexed by id
  std::vector<std::unique_ptr<Normalizer>> normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<Model> model_;
  std::optional<AddedTokenFinder> raw_, normalized_;  // the tokens to find before normalization, and after it
  std::vector<Decoder> decoders_;
  bool has_decoder_ = false;
  std::uint32_t vocab_size_ = 0;
  std::optional<std::uint32_t> end_of_text_;
  std::string separators_;    // a text may be cut before one of these characters between two letters
  bool drops_space_ = false;  // a cut drops the space, because the tokenizer puts one before every text
  bool letters_of_ascii_ = false;
};

// The template that the "post_processor" of a tokenizer.json puts around one text, and around two. ByteLevel only trims
// offsets, which does not change ids.
TextTemplate make_text_template(const Json& json);

// A SentencePiece model (`tokenizer.model`), run by the sentencepiece library. The class named in the settings
// determines the ids (XLM-RoBERTa and CamemBERT renumber those of the file). Added tokens are cut out first. Throws
// Error{usage} for a sentencepiece.bpe.model whose class is another or unknown.
std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderSettings& settings);

}  // namespace strata::text
