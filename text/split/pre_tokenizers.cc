#include "text/split/pre_tokenizers.h"

#include <algorithm>
#include <utility>

#include "text/split/split_behavior.h"
#include "text/split/split_pattern.h"
#include "text/unicode/byte_level.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

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
  Cut cut(char separator) const override {
    // With a letter on both sides, a match can only be the separator itself.
    if (!test_(static_cast<char32_t>(separator))) return Cut::keeps;
    return behavior_ == Behavior::merged_with_previous ? Cut::unsafe : Cut::makes;
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
  Cut cut(char separator) const override {
    if (delimiter_ == std::string_view(&separator, 1)) return Cut::makes;
    return character_at(delimiter_, 0).code < 0x80 ? Cut::keeps : Cut::unsafe;
  }

 private:
  std::string delimiter_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool maps) : prefix_space_(prefix_space), maps_(maps) {}

  // Its pattern is a separate stage, between adding the space and mapping the bytes.
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
  Cut cut(char separator) const override { return prefix_space_ && separator != ' ' ? Cut::unsafe : Cut::keeps; }
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
  Cut cut(char separator) const override {
    if (separator == ' ') return options_.split ? Cut::makes : Cut::unsafe;
    return options_.prepend == MetaspaceOptions::Prepend::never ? Cut::keeps : Cut::unsafe;
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
    // Stages after ByteLevel see its characters, not bytes.
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
