#pragma once
// text/ turns text into tokens and back, without Python: tokenizers with exactly the ids of Hugging Face's libraries,
// documents (documents.h), data set records and chat templates (chat/, template/), and the writer of token files
// (token_writer.h). It depends only on base/. A tokenizer is a pipeline (pipeline/pipeline.h): normalizers
// (unicode/normalizer.h) change the text, pre-tokenizers (split/pre_tokenizers.h) cut it into pieces, a model
// (subwords/model.h) finds the ids of each piece, and a post-processor adds the template. Open this header first, then
// pipeline/load.cc, which builds a tokenizer from a tokenizer.json.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text {

// The layout of a text, or a pair of texts, in tokens: where the special tokens are, and the token type of each piece.
struct TextTemplate {
  enum class Kind : std::uint8_t { token, first, second };
  struct Piece {
    Kind kind;
    std::uint32_t id = 0;  // a token's id
    std::uint32_t type = 0;
  };
  std::vector<Piece> single = {{Kind::first}};
  std::vector<Piece> pair = {};  // empty: the tokenizer has no template for pairs
  bool truncates_left = false;   // a text that is too long is truncated at its beginning (`truncation_side`)

  // The number of tokens that the template adds.
  static std::size_t added(const std::vector<Piece>& pieces) {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.kind == Kind::token ? 1 : 0;
    return sum;
  }
};

// The id of a token to which none has been assigned yet.
inline constexpr std::uint32_t kNextId = ~std::uint32_t{0};

// A token that is matched as a whole, before the text is cut into pieces.
struct AddedToken {
  std::uint32_t id = kNextId;
  std::string content = {};
  bool special = false, normalized = false, left_strip = false, right_strip = false, single_word = false;
};

// Converts text to token ids and back. Immutable, so any number of threads may use one Tokenizer, each with its own
// Workspace. Text is UTF-8. Invalid bytes are read as U+FFFD, one for each longest valid part of a character (like
// Python's errors="replace"), except by `byte`, which takes every byte as it is.
class Tokenizer {
 public:
  // One thread's state between calls: buffers and a cache of words.
  class Workspace {
   public:
    virtual ~Workspace() = default;
  };

  // hash: the XXH3-64 of everything that defines the tokenizer, 16 hex digits.
  Tokenizer(std::string name, std::string hash) : name_(std::move(name)), hash_(std::move(hash)) {}
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& hash() const { return hash_; }
  // All ids are less than this.
  virtual std::uint32_t vocab_size() const = 0;
  // The `eos_token` of the folder's configuration, if it names one.
  virtual std::optional<std::uint32_t> end_of_text() const = 0;
  virtual std::optional<std::uint32_t> id_of(std::string_view token) const = 0;
  // The template around one text, or two.
  const TextTemplate& text_template() const { return template_; }
  // The ids of special tokens, which are not text, in ascending order.
  virtual std::vector<std::uint32_t> special_ids() const = 0;
  // Tokens that the tokenizer's own file names and the folder's configuration does not: SentencePiece's "bos_token",
  // "eos_token", "unk_token" and "pad_token", with their texts.
  virtual std::vector<std::pair<std::string, std::string>> named_tokens() const { return {}; }
  // The token that takes the place of a token to be predicted: `mask_token` in the folder's configuration, otherwise
  // "[MASK]" or "<mask>" if it exists.
  std::optional<std::uint32_t> mask_id() const;

  // Notes for the user: contradictions between the files in the tokenizer's folder, and which file counts.
  const std::vector<std::string>& notes() const { return notes_; }

  virtual std::unique_ptr<Workspace> workspace() const = 0;
  // Appends the ids of `text` to `out`. add_special: with the template around the text.
  virtual void encode(std::string_view text, bool add_special, Workspace& workspace,
                      std::vector<std::uint32_t>& out) const = 0;
  std::vector<std::uint32_t> encode(std::string_view text, bool add_special = false) const;

  // The text of `ids`, valid UTF-8 (except by `byte`). Throws Error{usage} for an id that does not exist.
  virtual std::string decode(std::span<const std::uint32_t> ids, bool skip_special = true) const = 0;

  // The last place inside `text` before `limit` (`bytes`: exactly there) at which it may be cut: the ids of [0, end),
  // followed by the ids of the text from `next` on, are the ids of the whole, whatever follows `text`. There is at most
  // a space between `end` and `next`, if the tokenizer itself puts one before every text. end 0: no such place is
  // known. (Texts for SentencePiece's unigrams are cut only above 1 MiB, where the library's rounding decides between
  // pieces of equal score anyway.)
  struct TextCut {
    std::size_t end = 0, next = 0;
  };
  virtual TextCut safe_cut(std::string_view text, std::size_t limit) const = 0;

 protected:
  TextTemplate template_;
  std::vector<std::string> notes_;
  std::string mask_token_;  // empty: none is named

 private:
  std::string name_, hash_;
};

// The files in a Hugging Face directory that define a tokenizer. If there are several, the first one counts.
inline constexpr std::array kTokenizerFiles = {"tokenizer.json",          "tokenizer.model", "spiece.model",
                                               "sentencepiece.bpe.model", "vocab.json",      "vocab.txt"};

// `where`: "byte", one of these files, or a Hugging Face directory that contains one. vocab.json needs merges.txt next
// to it. Throws Error{usage} if nothing is there or a component is not supported (and names it), and Error{corrupt} if
// a file is broken.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& where);

// Decodes a growing sequence of ids piece by piece. Holds back an incomplete character until all its bytes have
// arrived.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  // The text that `id` adds; may be empty.
  std::string add(std::uint32_t id);
  // The text that is held back: U+FFFD for a character that was never completed.
  std::string finish();

 private:
  std::string emit(bool all);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  // The last ids. Those before `done_` have been handed out, but stay here because the text of the next token may
  // depend on them.
  std::vector<std::uint32_t> ids_;
  std::size_t done_ = 0;
};

}  // namespace strata::text
