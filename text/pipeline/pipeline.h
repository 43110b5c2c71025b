#pragma once
// text/pipeline/ is a tokenizer from end to end: load.cc reads a tokenizer.json and refuses what is not supported by
// name; Pipeline runs its stages; added_tokens.h, post_processor.h and decoder.h are those around the model;
// sentence_piece.h and byte.h are the two tokenizers that need no tokenizer.json.

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/folder/folder_settings.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/decoder.h"
#include "text/pipeline/post_processor.h"
#include "text/split/pre_tokenizers.h"
#include "text/subwords/model.h"
#include "text/subwords/vocabulary.h"
#include "text/tokenizer.h"
#include "text/unicode/normalizer.h"

namespace strata::text {

// The tokenizer of a tokenizer.json: added tokens are cut out, what lies between is normalized, split into pieces, and
// each piece is looked up by the model; ids are those of the tokenizers library. "truncation" and "padding" are not
// read: they are about batches, not about text.
class Pipeline final : public Tokenizer {
 public:
  // settings: what the files beside it say. `vocabulary_only`: `json` was made of a vocabulary, and its template is the
  // class's.
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
  // Whether spaces become a mark and words are told apart by that alone: then the vocabulary says whether a text may be
  // cut before it.
  void find_space_mark(const Json& model, const std::optional<Json>& normalizer,
                       const std::optional<Json>& pre_tokenizer);
  void encode_normalized(std::string_view text, bool first, Buffers& buffers, std::vector<std::uint32_t>& out) const;

  std::vector<AddedToken> added_;
  Vocabulary added_vocabulary_;
  std::vector<bool> special_;  // by id
  std::vector<std::unique_ptr<Normalizer>> normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<Model> model_;
  std::optional<AddedTokenFinder> raw_, normalized_;  // those to find before, and after, normalizing
  std::vector<std::unique_ptr<Decoder>> decoders_;
  bool has_decoder_ = false;
  std::uint32_t vocab_size_ = 0;
  std::optional<std::uint32_t> end_of_text_;
  std::string separators_;    // a text may be cut before these, between two letters
  bool drops_space_ = false;  // when it is cut: the tokenizer puts one before every text
  bool letters_of_ascii_ = false;
};

}  // namespace strata::text
