#include "text/pipeline/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/split/border.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// The library adds up the scores of unigrams in fp32 from the start of a text, so that rounding decides between pieces
// of nearly the same score, and the more the longer the text is: what is shorter is left whole.
constexpr std::size_t kLeastPartOfUnigrams = std::size_t{1} << 20;

// What the library does not say about a model: fields of its ModelProto (sentencepiece_model.proto), with the defaults
// of that file. The library has parsed it before; what does not read as it should here is left at its default.
struct Spec {
  bool unigrams = true, pairs = false;  // which model; there are others
  bool known_rules = false;             // of the library's own, none of which is about spaces between letters
  bool dummy_prefix = true;             // a space before every text
  bool removes_spaces = true;           // at the ends, and of several all but one
  bool escapes_spaces = true;           // to U+2581
  bool space_as_suffix = false;

  explicit Spec(std::string_view model) {
    each_field(model, [&](std::uint64_t number, std::uint64_t, std::string_view message) {
      if (number == 2)
        each_field(message, [&](std::uint64_t field, std::uint64_t value, std::string_view) {
          if (field == 3) unigrams = value == 1, pairs = value == 2;
          if (field == 24) space_as_suffix = value != 0;
        });
      if (number == 3)
        each_field(message, [&](std::uint64_t field, std::uint64_t value, std::string_view text) {
          if (field == 1) known_rules = is_known(text);
          if (field == 3) dummy_prefix = value != 0;
          if (field == 4) removes_spaces = value != 0;
          if (field == 5) escapes_spaces = value != 0;
        });
    });
  }

 private:
  static bool is_known(std::string_view rules) {
    constexpr std::string_view kRules[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"};
    return std::find(std::begin(kRules), std::end(kRules), rules) != std::end(kRules);
  }
  // use(number, value of a varint, bytes of a string or message) for each field of a message in protobuf's wire format.
  template <typename Use>
  static void each_field(std::string_view message, Use&& use) {
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(message[0]);
        message.remove_prefix(1);
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) break;
      }
      return value;
    };
    while (!message.empty()) {
      const std::uint64_t key = varint(), number = key >> 3, type = key & 7;
      if (type == 0) {
        use(number, varint(), std::string_view());
        continue;
      }
      if (type != 1 && type != 2 && type != 5) return;
      const std::uint64_t size = type == 1 ? 8 : type == 5 ? 4 : varint();
      if (size > message.size()) return;
      if (type == 2) use(number, 0, message.substr(0, size));
      message.remove_prefix(size);
    }
  }
};

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view model, const std::filesystem::path& path, std::string name, std::string hash,
                const FolderOptions& options)
      : Tokenizer(std::move(name), std::move(hash)) {
    const auto status = processor_.LoadFromSerializedProto({model.data(), model.size()});
    if (!status.ok() || processor_.GetPieceSize() <= 0) {
      fail(Exit::corrupt, "{}: expected a SentencePiece model, found: {}", path.string(), status.ToString());
    }
    if (options.eos) {
      end_of_text_ = id_of(*options.eos);
    } else if (processor_.eos_id() >= 0) {
      end_of_text_ = static_cast<std::uint32_t>(processor_.eos_id());
    }
    const Spec spec(model);
    drops_space_ = spec.dummy_prefix;
    if (spec.known_rules && (spec.unigrams || spec.pairs) && !spec.space_as_suffix && spec.escapes_spaces &&
        (spec.dummy_prefix || !spec.removes_spaces) && words_stay_apart())
      separators_.assign(1, ' ');
    if (spec.unigrams) least_part_ = kLeastPartOfUnigrams;
    add_bos_ = options.add_bos.value_or(false) && processor_.bos_id() >= 0;
    add_eos_ = options.add_eos.value_or(false) && processor_.eos_id() >= 0;
    using Kind = TextTemplate::Kind;
    const auto token = [](int id) { return TextTemplate::Piece{Kind::token, static_cast<std::uint32_t>(id)}; };
    if (add_bos_) template_.single.insert(template_.single.begin(), token(processor_.bos_id()));
    if (add_eos_) template_.single.push_back(token(processor_.eos_id()));
    template_.cuts_front = options.cuts_front;
  }

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    // An unknown piece has the id of <unk>.
    if (id < 0 || processor_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<std::uint32_t>(id);
  }
  std::vector<std::uint32_t> special_ids() const override {
    std::vector<std::uint32_t> out;
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id) || processor_.IsUnknown(id)) out.push_back(static_cast<std::uint32_t>(id));
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
    buffers.ids.clear();
    const auto status = processor_.Encode({text.data(), text.size()}, &buffers.ids);
    if (!status.ok()) fail(Exit::failed, "the tokenizer {} gives up on a text: {}", this->name(), status.ToString());
    if (add_special && add_bos_) out.push_back(static_cast<std::uint32_t>(processor_.bos_id()));
    out.insert(out.end(), buffers.ids.begin(), buffers.ids.end());
    if (add_special && add_eos_) out.push_back(static_cast<std::uint32_t>(processor_.eos_id()));
  }
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::vector<int> known;
    std::string out;
    const auto flush = [&] {
      std::string text;
      const auto status = processor_.Decode(known, &text);
      if (!status.ok()) fail(Exit::failed, "the tokenizer {} gives up on ids: {}", name(), status.ToString());
      out += text;
      known.clear();
    };
    for (const std::uint32_t id : ids) {
      if (id >= vocab_size()) continue;
      const int piece = static_cast<int>(id);
      if (!processor_.IsControl(piece)) {
        known.push_back(piece);
      } else if (!skip_special) {
        flush();
        out += processor_.IdToPiece(piece);
      }
    }
    flush();
    return out;
  }
  TextCut safe_cut(std::string_view text, std::size_t limit) const override {
    const std::size_t at = limit < least_part_ ? 0 : last_border(text, limit, separators_, true);
    return {at, at == 0 || !drops_space_ ? at : at + 1};
  }

 private:
  // No piece reaches from one word into the next, and the space is one.
  bool words_stay_apart() const {
    if (!id_of(kSpaceMark)) return false;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (reaches_over(piece, kSpaceMark) || piece.find(' ') != std::string::npos) return false;
    }
    return true;
  }

  struct Ids final : Workspace {
    std::vector<int> ids;
    std::string repaired;
  };
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<std::uint32_t> end_of_text_;
  bool add_bos_ = false, add_eos_ = false;
  std::string separators_;  // a text may be cut before these, between two letters of ASCII
  bool drops_space_ = false;
  std::size_t least_part_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderOptions& options) {
  return std::make_unique<SentencePiece>(model, path, std::move(name), std::move(hash), options);
}

}  // namespace strata::text
