#include "models/tokenizer/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "device/error.h"
#include "models/tokenizer/utf8.h"

namespace strata::models::tokenizer {
namespace {

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
    add_bos_ = options.add_bos.value_or(false) && processor_.bos_id() >= 0;
    add_eos_ = options.add_eos.value_or(false) && processor_.eos_id() >= 0;
  }

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    // An unknown piece has the id of <unk>.
    if (id < 0 || processor_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<std::uint32_t>(id);
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
  // Its normalizer may join or drop spaces anywhere.
  std::size_t safe_cut(std::string_view, std::size_t) const override { return 0; }

 private:
  struct Ids final : Workspace {
    std::vector<int> ids;
    std::string repaired;
  };
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<std::uint32_t> end_of_text_;
  bool add_bos_ = false, add_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentence_piece(std::string_view model, const std::filesystem::path& path,
                                               std::string name, std::string hash, const FolderOptions& options) {
  return std::make_unique<SentencePiece>(model, path, std::move(name), std::move(hash), options);
}

}  // namespace strata::models::tokenizer
