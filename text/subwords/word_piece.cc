#include <algorithm>

#include "text/subwords/model.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

std::uint32_t unknown_of(const Json& json, const Vocabulary& vocabulary, std::string_view otherwise) {
  const std::string token = json.text_or("unk_token", otherwise);
  const auto id = vocabulary.find(token);
  if (!id) json.wrong(fmt::format("a vocabulary with the unknown token \"{}\"", token));
  return *id;
}

// BERT's model: repeatedly takes the longest string in the vocabulary from the left; strings inside a word have a
// prefix (Wu et al. 2016, https://arxiv.org/abs/1609.08144). A word is unknown as a whole if it is very long, or if one
// of its parts is not in the vocabulary.
class WordPiece final : public Model {
 public:
  explicit WordPiece(const Json& json) : prefix_(json.text_or("continuing_subword_prefix", "##")) {
    if (const auto limit = json.find("max_input_chars_per_word")) {
      max_characters_ = static_cast<std::size_t>(limit->integer(0, 1 << 24));
    }
    vocabulary_ = read_vocabulary(json.at("vocab"));
    unknown_ = unknown_of(json, vocabulary_, "[UNK]");
    vocabulary_.for_each([&](std::string_view token, std::uint32_t) { longest_ = std::max(longest_, token.size()); });
  }
  struct Buffers final : Workspace {
    std::string text;
  };
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Buffers>(); }

  void encode(std::string_view piece, Workspace& workspace, std::vector<std::uint32_t>& out) const override {
    const std::size_t before = out.size();
    if (!encode_known(piece, static_cast<Buffers&>(workspace).text, out)) {
      out.resize(before);
      out.push_back(unknown_);
    }
  }

 private:
  bool encode_known(std::string_view piece, std::string& text, std::vector<std::uint32_t>& out) const {
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    if (piece.size() > max_characters_ &&
        static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), begins)) > max_characters_) {
      return false;
    }
    for (std::size_t at = 0; at < piece.size();) {
      // The prefix and the rest of the word, which is shortened from its end until the text is a token.
      text.assign(at == 0 ? "" : prefix_).append(piece.substr(at, longest_));
      const std::size_t begin = at == 0 ? 0 : prefix_.size();
      std::optional<std::uint32_t> id;
      std::size_t end = text.size();
      while (end > begin && !(id = vocabulary_.find(std::string_view(text).substr(0, end)))) --end;
      if (!id) return false;
      out.push_back(*id);
      at += end - begin;
    }
    return true;
  }

  std::string prefix_;
  std::size_t max_characters_ = 100, longest_ = 0;
  std::uint32_t unknown_ = 0;
};

// A piece is either a word in the vocabulary, or unknown.
class WordLevel final : public Model {
 public:
  explicit WordLevel(const Json& json) {
    vocabulary_ = read_vocabulary(json.at("vocab"));
    unknown_ = unknown_of(json, vocabulary_, "<unk>");
  }
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Workspace>(); }
  void encode(std::string_view piece, Workspace&, std::vector<std::uint32_t>& out) const override {
    out.push_back(vocabulary_.find(piece).value_or(unknown_));
  }

 private:
  std::uint32_t unknown_ = 0;
};

}  // namespace

Vocabulary read_vocabulary(const Json& json) {
  Vocabulary out;
  json.each_field([&](std::string_view token, const Json& id) {
    out.add_last(token, static_cast<std::uint32_t>(id.integer(0, kMaxId)), false);
  });
  if (out.count() == 0) json.wrong("a vocabulary that is not empty");
  return out;
}

std::unique_ptr<Model> make_word_piece(const Json& json) {
  return std::make_unique<WordPiece>(json);
}
std::unique_ptr<Model> make_word_level(const Json& json) {
  return std::make_unique<WordLevel>(json);
}

}  // namespace strata::text
