#include <utf8proc.h>

#include <cstring>
#include <optional>

#include "text/unicode/normalizer.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

std::string from_base64(const Json& json) {
  std::string out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : json.text()) {
    if (c == '=') break;
    const std::uint32_t digit = c >= 'A' && c <= 'Z'   ? static_cast<std::uint32_t>(c - 'A')
                                : c >= 'a' && c <= 'z' ? static_cast<std::uint32_t>(c - 'a' + 26)
                                : c >= '0' && c <= '9' ? static_cast<std::uint32_t>(c - '0' + 52)
                                : c == '+'             ? 62
                                : c == '/'             ? 63
                                                       : 64;
    if (digit == 64) json.wrong("base64");
    bits = bits << 6 | digit;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return out;
}

// SentencePiece's precompiled table: a double-array trie (darts-clone) from strings to places in a buffer of
// replacements, each of which ends with a zero byte. Like the tokenizers library, applies it to whole grapheme clusters
// of less than 6 bytes, and otherwise to each character. If several strings of the table are prefixes, the shortest
// counts and replaces the whole cluster or character.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const Json& json) {
    const Json map = json.at("precompiled_charsmap");
    const std::string blob = from_base64(map);
    std::uint32_t bytes = 0;
    if (blob.size() >= sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
    if (blob.size() < sizeof bytes || bytes % sizeof(std::uint32_t) != 0 || bytes > blob.size() - sizeof bytes) {
      map.wrong("a table with its length before it");
    }
    units_.resize(bytes / sizeof(std::uint32_t));
    if (bytes > 0) std::memcpy(units_.data(), blob.data() + sizeof bytes, bytes);
    texts_ = blob.substr(sizeof bytes + bytes);
  }

  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = cluster_end(text, at);
      const std::string_view cluster = text.substr(at, end - at);
      std::optional<std::string_view> with;
      if (cluster.size() < 6) with = replacement(cluster);
      if (with) {
        out += *with;
      } else {
        for (std::size_t i = 0; i < cluster.size();) {
          const std::string_view character = cluster.substr(i, character_at(cluster, i).bytes);
          out += replacement(character).value_or(character);
          i += character.size();
        }
      }
      at = end;
    }
  }
  CutSafety cut_safety(char separator) const override {
    const std::string_view text(&separator, 1);
    if (replacement(text).value_or(text) != text) return CutSafety::unsafe;
    for (char c = 'A'; c <= 'z'; ++c) {
      const std::string_view letter(&c, 1);
      const std::string_view with = replacement(letter).value_or(letter);
      const bool is_letter = with.size() == 1 && ((with[0] | 0x20) >= 'a' && (with[0] | 0x20) <= 'z');
      if (!is_letter && (c <= 'Z' || c >= 'a')) return CutSafety::unsafe;
    }
    return CutSafety::keeps;
  }

 private:
  static std::size_t cluster_end(std::string_view text, std::size_t at) {
    auto [code, bytes] = character_at(text, at);
    utf8proc_int32_t state = 0;
    for (at += bytes; at < text.size(); at += bytes) {
      const char32_t before = code;
      // Two ASCII characters are two clusters, unless they are CR LF.
      const auto next = character_at(text, at);
      if (before < 0x80 && next.code < 0x80 && !(before == '\r' && next.code == '\n')) break;
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                           static_cast<utf8proc_int32_t>(next.code), &state)) {
        break;
      }
      code = next.code;
      bytes = next.bytes;
    }
    return at;
  }

  std::optional<std::string_view> replacement(std::string_view text) const {
    const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    if (units_.empty()) return std::nullopt;
    std::size_t at = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return std::nullopt;
      at ^= byte;
      if (at >= units_.size()) return std::nullopt;
      const std::uint32_t unit = units_[at];
      if ((unit & ((1u << 31) | 0xff)) != byte) return std::nullopt;
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (at >= units_.size()) return std::nullopt;
      const std::size_t begin = units_[at] & ((1u << 31) - 1);
      if (begin >= texts_.size()) return std::nullopt;
      const auto with = std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
      // A broken table may point into the middle of a character.
      return is_valid_utf8(with) ? std::optional(with) : std::nullopt;
    }
    return std::nullopt;
  }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(const Json& json) {
  return std::make_unique<Precompiled>(json);
}

}  // namespace strata::text
