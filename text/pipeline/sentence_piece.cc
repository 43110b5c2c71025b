#include <sentencepiece_processor.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/protobuf.h"
#include "base/words.h"
#include "text/folder/class_components.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/pipeline.h"
#include "text/split/word_boundary.h"
#include "text/subwords/vocabulary.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// The library adds up the scores of unigrams in fp32 from the start of a text, so in long texts rounding increasingly
// decides between pieces of nearly equal score. Texts shorter than this are not cut.
constexpr std::size_t kLeastPartOfUnigrams = std::size_t{1} << 20;

// Properties of a model that the library does not expose: fields of its ModelProto, with the defaults in
// sentencepiece_model.proto. The library has already parsed the model. Here, a malformed field keeps its default.
struct PieceSpec {
  bool unigrams = true, pairs = false;  // the kind of model; there are others
  bool known_rules = false;             // the rules are the library's, and do not change spaces between letters
  bool dummy_prefix = true;             // put a space before every text
  bool removes_spaces = true;           // remove spaces at the ends, and all but one of consecutive spaces
  bool escapes_spaces = true;           // spaces become U+2581
  bool space_as_suffix = false;
  std::vector<int> of_user;  // user-defined pieces
  int pieces = 0;

  explicit PieceSpec(std::string_view model) {
    each_protobuf_field(model, [&](std::uint64_t number, std::uint64_t, std::string_view message) {
      if (number == 1)
        each_protobuf_field(message, [&](std::uint64_t field, std::uint64_t value, std::string_view) {
          if (field == 3 && value == 4) of_user.push_back(pieces);
        });
      pieces += number == 1 ? 1 : 0;
      if (number == 2)
        each_protobuf_field(message, [&](std::uint64_t field, std::uint64_t value, std::string_view) {
          if (field == 3) unigrams = value == 1, pairs = value == 2;
          if (field == 24) space_as_suffix = value != 0;
        });
      if (number == 3)
        each_protobuf_field(message, [&](std::uint64_t field, std::uint64_t value, std::string_view text) {
          if (field == 1) known_rules = is_known(text);
          if (field == 3) dummy_prefix = value != 0;
          if (field == 4) removes_spaces = value != 0;
          if (field == 5) escapes_spaces = value != 0;
        });
    });
  }

 private:
  static bool is_known(std::string_view rules) { return has_word("identity nfkc nmt_nfkc nfkc_cf nmt_nfkc_cf", rules); }
};

// How those of transformers' classes that renumber pieces change the file's numbers.
struct Numbering {
  std::vector<std::string> before;  // pieces put first, with the ids 0, 1, and so on
  std::uint32_t dropped = 0;        // the number of the file's pieces that `before` replaces
  bool mask_after = false;          // "<mask>" follows all pieces

  std::uint32_t id_of(int piece, int unknown) const {
    if (piece == unknown && !before.empty()) return 3;
    return static_cast<std::uint32_t>(piece) + static_cast<std::uint32_t>(before.size()) - dropped;
  }
};

Numbering numbering_of(const std::filesystem::path& path, const FolderSettings& settings) {
  if (settings.tokenizer_class == "XLMRobertaTokenizer") return {{"<s>", "<pad>", "</s>", "<unk>"}, 3, true};
  if (settings.tokenizer_class == "CamembertTokenizer")
    return {{"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"}, 1, true};
  if (path.filename() != "sentencepiece.bpe.model") return {};
  if (settings.tokenizer_class.empty())
    fail(Exit::usage,
         "{}: no tokenizer_config.json or config.json next to it names its tokenizer class, which decides how pieces "
         "are numbered: put the model's config.json there",
         path.string());
  fail(Exit::usage,
       "{} belongs to {}, which numbers pieces in its own way: {} writes a tokenizer.json, which Strata reads",
       path.string(), settings.tokenizer_class, save_command(path.parent_path()));
}

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view model, const std::filesystem::path& path, std::string name, std::string hash,
                const FolderSettings& settings)
      : Tokenizer(std::move(name), std::move(hash)), numbering_(numbering_of(path, settings)) {
    // LlamaTokenizer ignores the file's rules, and adds no space to a text that begins with one.
    llama_ = settings.is_llama();
    load(processor_, std::string(model) + (llama_ ? changed_rules(true, true) : ""), path);
    if (!numbering_.before.empty() && (processor_.unk_id() != 0 || processor_.GetPieceSize() < 3))
      fail(Exit::corrupt, "{}: expected a model of {}, whose first piece is the unknown one", path.string(),
           settings.tokenizer_class);
    const PieceSpec spec(model);
    number_pieces();
    if (settings.is_given) add_tokens(settings, spec.of_user);
    if (spec.dummy_prefix && (llama_ || !added_.empty())) {
      plain_.emplace();
      load(*plain_, std::string(model) + changed_rules(false, llama_), path);
    }
    // transformers' classes other than Llama's behave as in their first versions: they put a space before each part.
    legacy_ = settings.legacy.value_or(!llama_);
    if (const AddedToken* eos = settings.token("eos_token")) {
      end_of_text_ = id_of(eos->content);
    } else if (processor_.eos_id() >= 0 && !settings.is_null("eos_token")) {
      end_of_text_ = id_of(processor_.IdToPiece(processor_.eos_id()));
    }
    mask_token_ = settings.token_text("mask_token");
    drops_space_ = spec.dummy_prefix;
    if ((spec.known_rules || llama_) && (spec.unigrams || spec.pairs) && !spec.space_as_suffix && spec.escapes_spaces &&
        (spec.dummy_prefix || !spec.removes_spaces) && words_stay_apart())
      separators_.assign(1, ' ');
    if (spec.unigrams) least_part_ = kLeastPartOfUnigrams;
    FolderSettings named = settings;
    for (const auto& [key, text] : named_tokens())
      if (settings.token_text(key).empty()) named.named.emplace_back(key, AddedToken{.content = text});
    template_ = template_of_class(named, [&](std::string_view token) { return id_of(token); });
    if (!settings.is_given) template_.pair.clear();
    template_.truncates_left = settings.truncates_left;
  }

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(special_.size()); }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    if (const auto other = others_.find(token)) return other;
    const int id = processor_.PieceToId({token.data(), token.size()});
    // An unknown piece has the id of <unk>. The first pieces may have been replaced by others.
    if (id < 0 || processor_.IdToPiece(id) != token) return std::nullopt;
    if (!numbering_.before.empty() && id < static_cast<int>(numbering_.dropped)) return std::nullopt;
    return numbering_.id_of(id, processor_.unk_id());
  }
  std::vector<std::uint32_t> special_ids() const override {
    std::vector<std::uint32_t> out;
    for (std::uint32_t id = 0; id < special_.size(); ++id)
      if (special_[id]) out.push_back(id);
    return out;
  }
  std::vector<std::pair<std::string, std::string>> named_tokens() const override {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& [name, id] : {std::pair{"bos_token", processor_.bos_id()},
                                   {"eos_token", processor_.eos_id()},
                                   {"unk_token", processor_.unk_id()},
                                   {"pad_token", processor_.pad_id()}})
      if (id >= 0) out.emplace_back(name, processor_.IdToPiece(id));
    return out;
  }
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Ids>(); }
  using Tokenizer::encode;
  void encode(std::string_view text, bool add_special, Workspace& workspace,
              std::vector<std::uint32_t>& out) const override {
    auto& buffers = static_cast<Ids&>(workspace);
    if (!is_valid_utf8(text)) {
      buffers.repaired.clear();
      append_repaired(text, buffers.repaired);
      text = buffers.repaired;
    }
    const auto add = [&](auto begin, auto end) {
      for (; add_special && begin != end; ++begin) out.push_back(begin->id);
    };
    const auto text_at = std::find_if(template_.single.begin(), template_.single.end(),
                                      [](const auto& piece) { return piece.kind == TextTemplate::Kind::first; });
    add(template_.single.begin(), text_at);
    finder_->split(text, [&](std::string_view part, const AddedToken* token) {
      if (token != nullptr) return out.push_back(token->id);
      const bool begins = legacy_ || part.data() == text.data();
      const bool marked = llama_ && (part.starts_with(' ') || part.starts_with(kSpaceMark));
      encode_part(!plain_ || (begins && !marked) ? processor_ : *plain_, part, buffers, out);
    });
    // A template without a place for the text is written before the text.
    if (text_at != template_.single.end()) add(text_at + 1, template_.single.end());
  }
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::vector<int> known;
    std::string out;
    const auto flush = [&] {
      std::string text;
      const auto& processor = plain_ && !out.empty() ? *plain_ : processor_;
      const auto status = processor.Decode(known, &text);
      if (!status.ok()) fail(Exit::failed, "the tokenizer {} cannot decode ids: {}", name(), status.ToString());
      out += text;
      known.clear();
    };
    for (const std::uint32_t id : ids) {
      if (id >= vocab_size()) continue;
      if (skip_special && special_[id] && pieces_[id] != processor_.unk_id()) continue;
      const std::string* other = others_.token(id);
      if (other == nullptr && pieces_[id] >= 0 && !processor_.IsControl(pieces_[id])) {
        known.push_back(pieces_[id]);
      } else if (other != nullptr || pieces_[id] >= 0) {
        flush();
        out += other != nullptr ? *other : processor_.IdToPiece(pieces_[id]);
      }
    }
    flush();
    return out;
  }
  TextCut safe_cut(std::string_view text, std::size_t limit) const override {
    const std::size_t at = limit < least_part_ ? 0 : last_word_boundary(text, limit, separators_, true);
    return {at, at == 0 || !drops_space_ ? at : at + 1};
  }

 private:
  struct Ids final : Workspace {
    std::vector<int> ids;
    std::string repaired;
  };

  static void load(sentencepiece::SentencePieceProcessor& processor, const std::string& model,
                   const std::filesystem::path& path) {
    const auto status = processor.LoadFromSerializedProto(model);
    if (!status.ok() || processor.GetPieceSize() <= 0)
      fail(Exit::corrupt, "{}: expected a SentencePiece model, found: {}", path.string(), status.ToString());
  }

  // When appended to a serialized model, this changes the model's rules, because protobuf merges the fields of a
  // message that occurs twice. The normalizer_spec (3) gets add_dummy_prefix (3) and, if `none`, an empty
  // precompiled_charsmap (2) and no remove_extra_whitespaces (4).
  static std::string changed_rules(bool dummy_prefix, bool none) {
    std::string spec{'\x18', dummy_prefix ? '\x01' : '\x00'};
    if (none) spec.append(std::string("\x12\x00\x20\x00", 4));
    return std::string{'\x1a', static_cast<char>(spec.size())} + spec;
  }

  void number_pieces() {
    const int count = processor_.GetPieceSize();
    const auto put = [&](std::uint32_t id, int piece, bool special) {
      if (special_.size() <= id) special_.resize(id + std::size_t{1}), pieces_.resize(id + std::size_t{1}, -1);
      special_[id] = special;
      pieces_[id] = piece;
    };
    for (const std::string& token : numbering_.before) {
      const auto id = static_cast<std::uint32_t>(others_.count());
      put(id, -1, true);
      others_.add(token, id);
    }
    for (int piece = static_cast<int>(numbering_.dropped); piece < count; ++piece)
      put(numbering_.id_of(piece, -1), piece, processor_.IsControl(piece) || processor_.IsUnknown(piece));
    if (numbering_.mask_after) {
      const auto id = static_cast<std::uint32_t>(special_.size());
      put(id, -1, true);
      others_.add("<mask>", id);
    }
    finder_.emplace(std::vector<AddedTokenFinder::Pattern>());
  }

  // Adds the pieces that the file marks as control symbols or user-defined, and those that the folder adds.
  void add_tokens(const FolderSettings& settings, const std::vector<int>& of_user) {
    // The library finds user-defined pieces itself. Llama's class treats them as added tokens.
    const auto is_own = [&](int piece) {
      return llama_ && std::find(of_user.begin(), of_user.end(), piece) != of_user.end();
    };
    for (std::uint32_t id = 0; id < pieces_.size(); ++id) {
      const int piece = pieces_[id];
      if (const std::string* other = others_.token(id))
        added_.push_back({.id = id, .content = *other, .special = true});
      else if (piece >= 0 && (special_[id] || is_own(piece)))
        added_.push_back({.id = id, .content = processor_.IdToPiece(piece), .special = special_[id]});
    }
    added_ = with_added_tokens(
        std::move(added_), settings, [&](std::string_view token) { return id_of(token); }, vocab_size(), notes_);
    std::vector<AddedTokenFinder::Pattern> patterns;
    for (const bool special : {true, false})
      for (const AddedToken& token : added_) {
        if (token.special != special) continue;
        if (special_.size() <= token.id)
          special_.resize(token.id + std::size_t{1}), pieces_.resize(token.id + std::size_t{1}, -1);
        special_[token.id] = token.special;
        if (pieces_[token.id] < 0) others_.add(token.content, token.id);
        patterns.push_back({token.content, &token});
      }
    finder_.emplace(patterns);
  }

  void encode_part(const sentencepiece::SentencePieceProcessor& processor, std::string_view part, Ids& buffers,
                   std::vector<std::uint32_t>& out) const {
    buffers.ids.clear();
    const auto status = processor.Encode({part.data(), part.size()}, &buffers.ids);
    if (!status.ok()) fail(Exit::failed, "the tokenizer {} cannot encode a text: {}", name(), status.ToString());
    for (const int id : buffers.ids) out.push_back(numbering_.id_of(id, processor_.unk_id()));
  }

  // True if the space is a piece, no piece spans two words, and no added token involves spaces or may touch one, as a
  // word may.
  bool words_stay_apart() const {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    for (const AddedToken& token : added_) {
      const std::string& text = token.content;
      if (token.right_strip || is_letter(text.front()) || is_letter(text.back()) || text.find(' ') != std::string::npos)
        return false;
    }
    if (!id_of(kSpaceMark)) return false;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (reaches_over(piece, kSpaceMark) || piece.find(' ') != std::string::npos) return false;
    }
    return true;
  }

  Numbering numbering_;
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<sentencepiece::SentencePieceProcessor> plain_;  // puts no space before a text
  std::vector<AddedToken> added_;
  std::optional<AddedTokenFinder> finder_;
  Vocabulary others_;          // tokens that are not pieces of the file
  std::vector<bool> special_;  // indexed by id
  std::vector<int> pieces_;    // indexed by id; -1: not a piece of the file
  bool llama_ = false, legacy_ = true;
  std::optional<std::uint32_t> end_of_text_;
  std::string separators_;  // a text may be cut before these characters if they are between two ASCII letters
  bool drops_space_ = false;
  std::size_t least_part_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderSettings& settings) {
  return std::make_unique<SentencePiece>(model, path, std::move(name), std::move(hash), settings);
}

}  // namespace strata::text
