#include "text/split/pre_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "text/unicode/byte_level.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Patterns known to end a match between a letter and a single space or newline that is followed by a letter: no
// alternative matches a letter followed by either, and no alternative that ends with a letter has a lookahead.
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
// Patterns known to match no separator and to look at nothing outside the match: pieces between letters stay the same.
constexpr std::string_view kApartFromSeparator[] = {
    "[0-9][0-9][0-9]",           // Falcon
    R"(\p{N}{1,3})",             // DeepSeek V3
    "[一-龥぀-ゟ゠-ヿ]+",  // DeepSeek V3
};

// How the matches of a splitting pattern are divided into pieces (SplitDelimiterBehavior in the tokenizers library).
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behavior behavior_of(const Json& json) {
  const std::string_view name = json.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  json.unsupported(fmt::format("the behavior {}", shortened(name)));
}

// Takes the matches of a pattern in a piece from front to back, and passes on the parts that the behavior makes of
// them. inverted: matches and the text between them swap roles.
class BehaviorSplitter {
 public:
  BehaviorSplitter(Piece piece, Behavior behavior, bool inverted, PieceSink& sink)
      : piece_(piece), behavior_(behavior), inverted_(inverted), sink_(sink) {}

  void match(std::size_t begin, std::size_t end) {
    if (begin > at_) part(at_, begin, inverted_);
    if (end > begin) part(begin, end, !inverted_);
    at_ = end;
  }
  void finish() {
    if (at_ < piece_.text.size()) part(at_, piece_.text.size(), inverted_);
    flush();
  }

 private:
  void part(std::size_t begin, std::size_t end, bool is_match);
  void flush() {
    if (held_) emit(held_->begin, held_->end);
    held_.reset();
  }
  void emit(std::size_t begin, std::size_t end) {
    sink_.take({piece_.text.substr(begin, end - begin), piece_.first && begin == 0});
  }

  Piece piece_;
  Behavior behavior_;
  bool inverted_;
  PieceSink& sink_;
  std::size_t at_ = 0;
  std::optional<Match> held_;  // a part that has begun and may still grow
  bool previous_ = false;      // the last part was a match
};

void BehaviorSplitter::part(std::size_t begin, std::size_t end, bool is_match) {
  switch (behavior_) {
    case Behavior::removed:
      if (!is_match) emit(begin, end);
      return;
    case Behavior::isolated:
      return emit(begin, end);
    case Behavior::contiguous:
    case Behavior::merged_with_previous:
      if (held_ && (behavior_ == Behavior::contiguous ? is_match == previous_ : is_match && !previous_)) {
        held_->end = end;
      } else {
        flush();
        held_ = Match{begin, end};
      }
      break;
    case Behavior::merged_with_next:
      // Only matches are held back.
      if (is_match) {
        flush();
        held_ = Match{begin, end};
      } else {
        emit(held_ ? held_->begin : begin, end);
        held_.reset();
      }
      break;
  }
  previous_ = is_match;
}

template <std::size_t n>
bool is_one_of(std::string_view pattern, const std::string_view (&known)[n]) {
  return std::find(std::begin(known), std::end(known), pattern) != std::end(known);
}

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Regex regex, Behavior behavior, bool inverted, CutSafety cut)
      : regex_(std::move(regex)), behavior_(behavior), inverted_(inverted), cut_safety_(cut) {}

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
  CutSafety cut_safety(char) const override { return cut_safety_; }

 private:
  Regex regex_;
  Behavior behavior_;
  bool inverted_;
  CutSafety cut_safety_;
};

// "Split": a regular expression or a string, a behavior, and whether it is inverted.
std::unique_ptr<PreTokenizer> make_split(const Json& json) {
  const Json pattern = json.at("pattern");
  const Behavior behavior = behavior_of(json.at("behavior"));
  const bool inverted = json.flag_or("invert", false);
  if (const auto literal = pattern.find("String")) {
    if (literal->text().empty()) literal->wrong("a string that is not empty");
    return std::make_unique<PatternSplit>(Regex(escaped_for_regex(literal->text())), behavior, inverted,
                                          CutSafety::unsafe);
  }
  const Json regex = pattern.at("Regex");
  CutSafety cut = CutSafety::unsafe;
  if (behavior == Behavior::isolated && is_one_of(regex.text(), kApartFromSeparator)) cut = CutSafety::keeps;
  // Such a pattern has all letters and separators in its matches.
  const bool whole = behavior == Behavior::isolated || (behavior == Behavior::removed && inverted);
  if (whole && is_one_of(regex.text(), kEndBeforeSeparator)) cut = CutSafety::makes;
  return std::make_unique<PatternSplit>(Regex(regex.text(), regex), behavior, inverted, cut);
}

// GPT-2's pattern, which ByteLevel includes.
std::unique_ptr<PreTokenizer> gpt2_split() {
  std::string unsupported;
  return std::make_unique<PatternSplit>(Regex(from_oniguruma(kGpt2, unsupported)), Behavior::isolated, false,
                                        CutSafety::makes);
}

// "Whitespace": words, and sequences of other characters except white space.
std::unique_ptr<PreTokenizer> whitespace_split() {
  // \w of the Rust crate `regex`, which includes joiners.
  static constexpr std::string_view kPattern = R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)";
  std::string unsupported;
  return std::make_unique<PatternSplit>(Regex(from_oniguruma(kPattern, unsupported)), Behavior::removed, true,
                                        CutSafety::makes);
}

using CharacterTest = bool (*)(char32_t);

// Splits at characters of one kind.
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(CharacterTest test, Behavior behavior) : test_(test), behavior_(behavior) {}

  void split(Piece piece, RegexMatcher&, std::string&, PieceSink& sink) const override {
    BehaviorSplitter splitter(piece, behavior_, false, sink);
    for (std::size_t at = 0; at < piece.text.size();) {
      const auto [code, bytes] = character_at(piece.text, at);
      if (test_(code)) splitter.match(at, at + bytes);
      at += bytes;
    }
    splitter.finish();
  }
  CutSafety cut_safety(char separator) const override {
    // If both neighbours are letters, a match can only be the separator itself.
    if (!test_(static_cast<char32_t>(separator))) return CutSafety::keeps;
    return behavior_ == Behavior::merged_with_previous ? CutSafety::unsafe : CutSafety::makes;
  }

 private:
  CharacterTest test_;
  Behavior behavior_;
};

class DelimiterSplit final : public PreTokenizer {
 public:
  explicit DelimiterSplit(std::string delimiter) : delimiter_(std::move(delimiter)) {}

  void split(Piece piece, RegexMatcher&, std::string&, PieceSink& sink) const override {
    BehaviorSplitter splitter(piece, Behavior::removed, false, sink);
    for (std::size_t at = 0; (at = piece.text.find(delimiter_, at)) != std::string_view::npos;
         at += delimiter_.size()) {
      splitter.match(at, at + delimiter_.size());
    }
    splitter.finish();
  }
  CutSafety cut_safety(char separator) const override {
    if (delimiter_ == std::string_view(&separator, 1)) return CutSafety::makes;
    return character_at(delimiter_, 0).code < 0x80 ? CutSafety::keeps : CutSafety::unsafe;
  }

 private:
  std::string delimiter_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool maps) : prefix_space_(prefix_space), maps_(maps) {}

  // The pattern is a separate stage between adding the space and mapping the bytes.
  void split(Piece piece, RegexMatcher&, std::string& buffer, PieceSink& sink) const override {
    const bool space = prefix_space_ && !piece.text.starts_with(' ');
    if (!space && !maps_) return sink.take(piece);
    buffer.clear();
    if (space) buffer += ' ';
    if (maps_) {
      append_byte_characters(piece.text, buffer);
    } else {
      buffer += piece.text;
    }
    sink.take({buffer, piece.first});
  }
  CutSafety cut_safety(char separator) const override {
    return prefix_space_ && separator != ' ' ? CutSafety::unsafe : CutSafety::keeps;
  }
  bool hides_separators() const override { return maps_; }

 private:
  bool prefix_space_, maps_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  void split(Piece piece, RegexMatcher&, std::string& buffer, PieceSink& sink) const override {
    using Prepend = MetaspaceOptions::Prepend;
    const std::string& mark = options_.replacement;
    buffer.clear();
    const bool marked = piece.text.starts_with(' ') || piece.text.starts_with(mark);
    const bool wanted = options_.prepend == Prepend::always || (options_.prepend == Prepend::first && piece.first);
    if (wanted && !marked) buffer += mark;
    for (const char c : piece.text) {
      if (c == ' ') {
        buffer += mark;
      } else {
        buffer += c;
      }
    }
    if (!options_.split) return sink.take({buffer, piece.first});
    const std::string_view text = buffer;
    BehaviorSplitter splitter({text, piece.first}, Behavior::merged_with_next, false, sink);
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string_view::npos; at += mark.size()) {
      splitter.match(at, at + mark.size());
    }
    splitter.finish();
  }
  CutSafety cut_safety(char separator) const override {
    if (separator == ' ') return options_.split ? CutSafety::makes : CutSafety::unsafe;
    return options_.prepend == MetaspaceOptions::Prepend::never ? CutSafety::keeps : CutSafety::unsafe;
  }

 private:
  MetaspaceOptions options_;
};

void add(const Json& json, PreTokenizers& out) {
  const auto stage = [&]<typename Stage>(Stage made) {
    out.stages.push_back(std::make_unique<Stage>(std::move(made)));
  };
  const std::string_view type = json.type();
  if (out.bytes) {
    // Stages after ByteLevel see its characters instead of bytes.
    stage(ByteLevel(false, true));
    out.bytes = false;
  }
  if (type == "Sequence") {
    json.at("pretokenizers").each([&](const Json& one) { add(one, out); });
  } else if (type == "ByteLevel") {
    if (json.flag_or("add_prefix_space", true)) stage(ByteLevel(true, false));
    if (json.flag_or("use_regex", true)) out.stages.push_back(gpt2_split());
    out.bytes = true;
  } else if (type == "Split") {
    out.stages.push_back(make_split(json));
  } else if (type == "Whitespace") {
    out.stages.push_back(whitespace_split());
  } else if (type == "WhitespaceSplit") {
    stage(CharacterSplit(&is_whitespace, Behavior::removed));
  } else if (type == "BertPreTokenizer") {
    stage(CharacterSplit(&is_whitespace, Behavior::removed));
    stage(CharacterSplit(&is_punctuation, Behavior::isolated));
  } else if (type == "Punctuation") {
    const auto behavior = json.find("behavior");
    stage(CharacterSplit(&is_punctuation, behavior ? behavior_of(*behavior) : Behavior::isolated));
  } else if (type == "Digits") {
    stage(CharacterSplit(&is_numeric,
                         json.flag_or("individual_digits", false) ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "Metaspace") {
    stage(Metaspace(metaspace_options(json)));
  } else if (type == "CharDelimiterSplit") {
    const std::string_view delimiter = json.at("delimiter").text();
    if (delimiter.empty() || character_at(delimiter, 0).bytes != delimiter.size())
      json.wrong("a delimiter of one character");
    stage(DelimiterSplit(std::string(delimiter)));
  } else {
    json.unsupported(fmt::format("the pre-tokenizer {}", shortened(type)));
  }
}

}  // namespace

PreTokenizers make_pre_tokenizers(const Json& json, bool bytes_wanted) {
  PreTokenizers out;
  add(json, out);
  if (out.bytes && !bytes_wanted) {
    out.stages.push_back(std::make_unique<ByteLevel>(false, true));
    out.bytes = false;
  }
  return out;
}

MetaspaceOptions metaspace_options(const Json& json) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions out{json.text_or("replacement", "\u2581"), Prepend::always, json.flag_or("split", true)};
  if (out.replacement.empty()) json.wrong("a replacement of one character");
  if (const auto scheme = json.find("prepend_scheme")) {
    const std::string_view name = scheme->text();
    if (name != "always" && name != "first" && name != "never") scheme->wrong("always, first or never");
    out.prepend = name == "always" ? Prepend::always : name == "first" ? Prepend::first : Prepend::never;
  }
  if (!json.flag_or("add_prefix_space", true)) out.prepend = Prepend::never;
  return out;
}

}  // namespace strata::text
