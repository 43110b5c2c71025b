#include "text/unicode/normalizer.h"

#include <utf8proc.h>

#include <utility>

#include "text/unicode/byte_level.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// Maps each character separately to zero or more characters.
template <typename Rule>
class ByCharacter final : public Normalizer {
 public:
  explicit ByCharacter(Rule rule, CutSafety space = CutSafety::keeps, CutSafety newline = CutSafety::keeps)
      : rule_(std::move(rule)), space_(space), newline_(newline) {}
  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, bytes] = character_at(text, at);
      rule_(code, out);
      at += bytes;
    }
  }
  bool drops_beginning(std::string_view text) const override {
    std::string first;
    if (!text.empty()) rule_(character_at(text, 0).code, first);
    return !text.empty() && first.empty();
  }
  CutSafety cut_safety(char separator) const override { return separator == ' ' ? space_ : newline_; }

 private:
  Rule rule_;
  CutSafety space_, newline_;
};

void lowercase(char32_t code, std::string& out) {
  // The only character whose lower case has two characters.
  if (code == 0x130) {
    out += "i\xcc\x87";
  } else {
    append_character(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), out);
  }
}

void strip_mark(char32_t code, std::string& out) {
  if (!is_mark(code)) append_character(code, out);
}

// SentencePiece's nmt_* rules: control characters are removed, unusual spaces become spaces.
void clean_nmt(char32_t code, std::string& out) {
  if ((code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f || code == 0x8f ||
      code == 0x9f) {
    return;
  }
  const bool space = code == 0x9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                     (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                     code == 0xfeff || code == 0xfffd;
  append_character(space ? ' ' : code, out);
}

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    while (left_ && !text.empty() && is_whitespace(character_at(text, 0).code)) {
      text.remove_prefix(character_at(text, 0).bytes);
    }
    while (right_ && !text.empty() && is_whitespace(last_character(text).code)) {
      text.remove_suffix(last_character(text).bytes);
    }
    out += text;
  }
  bool drops_beginning(std::string_view text) const override {
    return left_ && !text.empty() && is_whitespace(character_at(text, 0).code);
  }
  CutSafety cut_safety(char) const override { return left_ ? CutSafety::unsafe : CutSafety::keeps; }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    if (!text.empty()) out += text_;
    out += text;
  }
  CutSafety cut_safety(char) const override { return CutSafety::unsafe; }

 private:
  std::string text_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content, CutSafety cut)
      : pattern_(std::move(pattern)), content_(std::move(content)), cut_safety_(cut) {}
  void apply(std::string_view text, RegexMatcher& matcher, std::string& out) const override {
    std::size_t done = 0;
    Match match{};
    for (std::size_t at = 0; at <= text.size() && pattern_.find(text, at, matcher, match);) {
      out.append(text.substr(done, match.begin - done)).append(content_);
      done = at = match.end;
      if (match.begin == match.end) at += at < text.size() ? character_at(text, at).bytes : 1;
    }
    out += text.substr(done);
  }
  CutSafety cut_safety(char) const override { return cut_safety_; }

 private:
  Regex pattern_;
  std::string content_;
  CutSafety cut_safety_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    append_byte_characters(text, out);
  }
  // Later stages do not see the separator.
  CutSafety cut_safety(char) const override { return CutSafety::unsafe; }
};

std::unique_ptr<Normalizer> make_replace(const Json& json) {
  const Json pattern = json.at("pattern");
  const std::string content(json.at("content").text());
  if (const auto regex = pattern.find("Regex")) {
    // Sequences of at least two spaces; a single space between letters does not match.
    const bool runs = regex->text() == " {2,}";
    return std::make_unique<Replace>(Regex(regex->text(), *regex), content,
                                     runs ? CutSafety::keeps : CutSafety::unsafe);
  }
  const Json literal = pattern.at("String");
  if (literal.text().empty()) literal.wrong("a string that is not empty");
  // Punctuation such as `` for ", without letters or separators.
  const bool apart = literal.text().find_first_not_of("`'\"") == std::string_view::npos;
  return std::make_unique<Replace>(Regex(escaped_for_regex(literal.text())), content,
                                   apart ? CutSafety::keeps : CutSafety::unsafe);
}

template <typename Rule>
std::unique_ptr<Normalizer> by_character(Rule rule, CutSafety space = CutSafety::keeps,
                                         CutSafety newline = CutSafety::keeps) {
  return std::make_unique<ByCharacter<Rule>>(rule, space, newline);
}

void add(const Json& json, std::vector<std::unique_ptr<Normalizer>>& out) {
  const std::string_view type = json.type();
  if (type == "Sequence") {
    json.at("normalizers").each([&](const Json& one) { add(one, out); });
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    out.push_back(make_unicode_form(type));
  } else if (type == "Lowercase") {
    out.push_back(by_character(&lowercase));
  } else if (type == "StripAccents") {
    out.push_back(by_character(&strip_mark));
  } else if (type == "Nmt") {
    out.push_back(by_character(&clean_nmt, CutSafety::keeps, CutSafety::unsafe));
  } else if (type == "Strip") {
    out.push_back(std::make_unique<Strip>(json.flag_or("strip_left", true), json.flag_or("strip_right", true)));
  } else if (type == "Prepend") {
    out.push_back(std::make_unique<Prepend>(std::string(json.at("prepend").text())));
  } else if (type == "Replace") {
    out.push_back(make_replace(json));
  } else if (type == "ByteLevelNormalizer") {
    out.push_back(std::make_unique<ByteLevelNormalizer>());
  } else if (type == "BertNormalizer") {
    const bool clean = json.flag_or("clean_text", true), chinese = json.flag_or("handle_chinese_chars", true);
    const bool lower = json.flag_or("lowercase", true), strip = json.flag_or("strip_accents", lower);
    if (clean) {
      out.push_back(by_character(
          [](char32_t code, std::string& text) {
            if (code == '\t' || code == '\n' || code == '\r') {
              text += ' ';  // control characters, but they become spaces
            } else if (code != 0xfffd && !is_other(code)) {
              append_character(is_whitespace(code) ? ' ' : code, text);
            }
          },
          CutSafety::keeps, CutSafety::unsafe));
    }
    if (chinese) {
      out.push_back(by_character([](char32_t code, std::string& text) {
        if (is_chinese(code)) {
          text += ' ';
          append_character(code, text);
          text += ' ';
        } else {
          append_character(code, text);
        }
      }));
    }
    if (strip) {
      out.push_back(make_unicode_form("NFD"));
      out.push_back(by_character([](char32_t code, std::string& text) {
        if (!is_nonspacing_mark(code)) append_character(code, text);
      }));
    }
    if (lower) out.push_back(by_character(&lowercase));
  } else if (type == "Precompiled") {
    out.push_back(make_precompiled(json));
  } else {
    json.unsupported(fmt::format("the normalizer {}", shortened(type)));
  }
}

}  // namespace

std::vector<std::unique_ptr<Normalizer>> make_normalizers(const Json& json) {
  std::vector<std::unique_ptr<Normalizer>> out;
  add(json, out);
  return out;
}

}  // namespace strata::text
