#include "text/split/split_pattern.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "text/split/split_behavior.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Patterns known to end a match between a letter and a single space or newline that a letter follows: no alternative
// has a letter followed by either, and none that ends with a letter has a lookahead.
constexpr std::string_view kEndBeforeSeparator[] = {
    kGpt2,
    // Llama 3, and cl100k
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 2 and 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // o200k: GPT-4o, gpt-oss
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Mistral's Tekken
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // DeepSeek V3
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};
// Patterns known to match no separator and to look at nothing outside the match: pieces between letters do not change.
constexpr std::string_view kApartFromSeparator[] = {
    "[0-9][0-9][0-9]",           // Falcon
    R"(\p{N}{1,3})",             // DeepSeek V3
    "[一-龥぀-ゟ゠-ヿ]+",  // DeepSeek V3
};

template <std::size_t n>
bool is_one_of(std::string_view pattern, const std::string_view (&known)[n]) {
  return std::find(std::begin(known), std::end(known), pattern) != std::end(known);
}

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Regex regex, Behavior behavior, bool inverted, Cut cut)
      : regex_(std::move(regex)), behavior_(behavior), inverted_(inverted), cut_(cut) {}

  void split(Piece piece, RegexMatcher& matcher, std::string&, PieceSink& sink) const override {
    BehaviorSplitter splitter(piece, behavior_, inverted_, sink);
    Match match{};
    for (std::size_t at = 0; at < piece.text.size() && regex_.find(piece.text, at, matcher, match);) {
      splitter.match(match.begin, match.end);
      at = match.end;
      if (match.begin == match.end && at < piece.text.size()) at += character_at(piece.text, at).bytes;
    }
    splitter.finish();
  }
  Cut cut(char) const override { return cut_; }

 private:
  Regex regex_;
  Behavior behavior_;
  bool inverted_;
  Cut cut_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(const Json& json) {
  const Json pattern = json.at("pattern");
  const Behavior behavior = behavior_of(json.at("behavior"));
  const bool inverted = json.flag_or("invert", false);
  if (const auto literal = pattern.find("String")) {
    if (literal->text().empty()) literal->wrong("a string that is not empty");
    return std::make_unique<PatternSplit>(Regex(escaped_for_regex(literal->text())), behavior, inverted, Cut::unsafe);
  }
  const Json regex = pattern.at("Regex");
  Cut cut = Cut::unsafe;
  if (behavior == Behavior::isolated && is_one_of(regex.text(), kApartFromSeparator)) cut = Cut::keeps;
  // Such a pattern puts all letters and separators into matches.
  const bool whole = behavior == Behavior::isolated || (behavior == Behavior::removed && inverted);
  if (whole && is_one_of(regex.text(), kEndBeforeSeparator)) cut = Cut::makes;
  return std::make_unique<PatternSplit>(Regex(regex.text(), regex), behavior, inverted, cut);
}

std::unique_ptr<PreTokenizer> gpt2_split() {
  std::string unsupported;
  return std::make_unique<PatternSplit>(Regex(from_oniguruma(kGpt2, unsupported)), Behavior::isolated, false,
                                        Cut::makes);
}

std::unique_ptr<PreTokenizer> whitespace_split() {
  // \w in the Rust crate `regex`, which includes joiners.
  static constexpr std::string_view kPattern = R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)";
  std::string unsupported;
  return std::make_unique<PatternSplit>(Regex(from_oniguruma(kPattern, unsupported)), Behavior::removed, true,
                                        Cut::makes);
}

}  // namespace strata::text
