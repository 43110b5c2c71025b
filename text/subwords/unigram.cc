#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/subwords/byte_trie.h"
#include "text/subwords/model.h"
#include "text/subwords/word_cache.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// The score of a character that no token covers is this much below that of the worst token.
constexpr double kUnknownPenalty = 10;

// The score as the tokenizers library reads it. Its JSON reader rounds the digits to a double and then divides by a
// power of ten, so the last bit may be wrong. Because sums of scores are compared, this bit may decide a tie. The file
// has the shortest digits that give `exact`, as its writer and Python print them.
double as_read_by_library(double exact) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), std::abs(exact), std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  for (const char* c = text.data(); c != end; ++c) {
    if (*c == 'e') {
      // from_chars does not accept a plus sign.
      int power = 0;
      std::from_chars(c[1] == '+' ? c + 2 : c + 1, end, power);
      exponent += power;
      break;
    }
    if (*c == '.') continue;
    digits = digits * 10 + static_cast<std::uint64_t>(*c - '0');
    if (c > text.data()) --exponent;
  }
  // Only digits after the decimal point cause a division. 1500 is read exactly, as an integer.
  if (exponent >= 0 || exponent < -308) return exact;
  return std::copysign(static_cast<double>(digits) / std::pow(10.0, -exponent), exact);
}

// The unigram language model (Kudo 2018, https://arxiv.org/abs/1804.10959). Viterbi's algorithm finds the segmentation
// of a piece into tokens with the largest sum of scores; of equal ones, the first from the left.
class Unigram final : public Model {
 public:
  explicit Unigram(const Json& json);

  struct Node {
    double score;
    std::uint32_t id, begin;  // the last token of the best segmentation up to this place
    bool reached;
  };
  struct Buffers final : Workspace {
    WordCache cache;
    std::vector<Node> best;  // indexed by the byte at which a token ends
    std::vector<std::pair<std::uint32_t, std::uint32_t>> parts;
  };
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Buffers>(); }

  void encode(std::string_view piece, Workspace& workspace, std::vector<std::uint32_t>& out) const override {
    auto& buffers = static_cast<Buffers&>(workspace);
    buffers.cache.append(piece, out, [&] {
      search(piece, buffers);
      write(piece, buffers, out);
    });
  }

 private:
  void search(std::string_view piece, Buffers& buffers) const;
  void write(std::string_view piece, Buffers& buffers, std::vector<std::uint32_t>& out) const;
  std::uint32_t unknown() const {
    if (!unknown_) fail(Exit::usage, "the tokenizer's model has no unk_id, but the text has a character that it lacks");
    return *unknown_;
  }

  std::vector<double> scores_;
  double worst_ = std::numeric_limits<double>::infinity();
  ByteTrie tokens_;
  std::optional<std::uint32_t> unknown_;
  std::vector<std::uint32_t> byte_ids_;  // the ids of <0x00> to <0xFF>, for byte_fallback if all exist
};

Unigram::Unigram(const Json& json) {
  json.at("vocab").each([&](const Json& entry) {
    std::string_view token;
    double score = 0;
    std::size_t n = 0;
    entry.each([&](const Json& part) {
      if (n == 0) token = part.text();
      if (n == 1) score = as_read_by_library(part.number());
      ++n;
    });
    if (n != 2) entry.wrong("a token and its score");
    const auto id = static_cast<std::uint32_t>(scores_.size());
    vocabulary_.add_last(token, id, true);  // CamemBERT's has <unk> twice; the library finds the last one
    scores_.push_back(score);
    worst_ = std::min(worst_, score);
    if (!token.empty()) tokens_.number_of(token) = id;  // of equal tokens, the last counts
  });
  if (scores_.empty()) json.wrong("a vocabulary that is not empty");
  if (const auto unknown = json.find("unk_id")) {
    unknown_ = static_cast<std::uint32_t>(unknown->integer(0, static_cast<std::int64_t>(scores_.size()) - 1));
  }
  if (!json.flag_or("byte_fallback", false)) return;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    if (!id) json.wrong("a vocabulary with <0x00> to <0xFF>, as byte_fallback requires");
    byte_ids_.push_back(*id);
  }
}

void Unigram::search(std::string_view piece, Buffers& buffers) const {
  auto& best = buffers.best;
  best.assign(piece.size() + 1, {0, 0, 0, false});
  for (std::size_t at = 0; at < piece.size();) {
    const double so_far = best[at].score;
    const std::size_t character = character_at(piece, at).bytes;
    bool single = false;
    const auto reach = [&](std::size_t bytes, std::uint32_t id, double score) {
      Node& node = best[at + bytes];
      if (!node.reached || so_far + score > node.score) {
        node = {so_far + score, id, static_cast<std::uint32_t>(at), true};
      }
    };
    tokens_.prefixes(piece.substr(at), [&](std::size_t bytes, std::uint32_t id) {
      reach(bytes, id, scores_[id]);
      single = single || bytes == character;
    });
    if (!single) reach(character, unknown(), worst_ - kUnknownPenalty);
    at += character;
  }
}

void Unigram::write(std::string_view piece, Buffers& buffers, std::vector<std::uint32_t>& out) const {
  auto& parts = buffers.parts;  // the parts of the best segmentation, last one first
  parts.clear();
  for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0; end = buffers.best[end].begin) {
    parts.emplace_back(buffers.best[end].begin, end);
  }
  for (auto part = parts.rbegin(); part != parts.rend();) {
    const std::uint32_t id = buffers.best[part->second].id;
    const std::uint32_t begin = part->first;
    if (!unknown_ || id != *unknown_) {
      out.push_back(id);
      ++part;
      continue;
    }
    // Adjoining unknown parts become one.
    std::uint32_t end = begin;
    for (; part != parts.rend() && buffers.best[part->second].id == id; ++part) end = part->second;
    const std::string_view text = piece.substr(begin, end - begin);
    if (const auto known = vocabulary_.find(text)) {
      out.push_back(*known);
    } else if (byte_ids_.empty()) {
      out.push_back(id);
    } else {
      for (const char c : text) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    }
  }
}

}  // namespace

std::unique_ptr<Model> make_unigram(const Json& json) {
  return std::make_unique<Unigram>(json);
}

}  // namespace strata::text
