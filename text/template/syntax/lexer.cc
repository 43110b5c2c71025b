#include "text/template/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/quote.h"
#include "text/template/values/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}
int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Replaces every line break by "\n" and removes the last one.
std::string with_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void wrong(std::string message) const { throw SyntaxFault{std::move(message), line_}; }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  char peek(std::size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  bool has(std::size_t at, std::string_view text) const { return source_.compare(at, text.size(), text) == 0; }
  void go_to(std::size_t at) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    line_starting_ = at > at_ && source_[at - 1] == '\n';
    at_ = at;
  }
  std::size_t skip_space(std::size_t at) const {
    while (at < source_.size() && is_space(character_at(source_, at).code)) at += character_length(source_[at]);
    return at;
  }
  // The place after a tag's closing "%}", "}}" or "#}" (with its sign) at `at`; npos if there is no such end.
  std::size_t end_of(std::size_t at, std::string_view end) const {
    if (peek(at) == '-' && has(at + 1, end)) return skip_space(at + 3);
    if (peek(at) == '+' && end != "}}" && has(at + 1, end)) return at + 3;
    if (!has(at, end)) return npos;
    return at + 2 + (end != "}}" && peek(at + 2) == '\n' ? 1 : 0);
  }

  // Reads text up to a tag, and the tag.
  void root() {
    std::size_t tag = source_.find('{', at_);
    while (tag != npos && peek(tag + 1) != '{' && peek(tag + 1) != '%' && peek(tag + 1) != '#')
      tag = source_.find('{', tag + 1);
    if (tag == npos) {
      add(Token::Kind::data, source_.substr(at_));
      return go_to(source_.size());
    }
    data_before(tag, peek(tag + 1) != '{');
    const std::size_t after = tag + (peek(tag + 2) == '-' || peek(tag + 2) == '+' ? 3 : 2);
    switch (source_[tag + 1]) {
      case '#':
        return comment(after);
      case '%':
        if (!raw(after)) tag_until(after, Token::Kind::block_begin, "%}", Token::Kind::block_end);
        return;
      default:
        tag_until(after, Token::Kind::variable_begin, "}}", Token::Kind::variable_end);
    }
  }
  // Adds the text before a tag, trimmed according to the tag's sign and lstrip_blocks.
  void data_before(std::size_t tag, bool is_block) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = peek(tag + 2);
    if (sign == '-') {
      text = strip(text, Side::right);
    } else if (sign != '+' && is_block) {
      const std::size_t newline = text.rfind('\n');
      if (newline != npos || line_starting_) {
        const std::size_t begin = newline == npos ? 0 : newline + 1;
        if (strip(text.substr(begin), Side::both).empty()) text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(Token::Kind::data, std::string(text));
    go_to(tag);
  }
  void comment(std::size_t at) {
    for (go_to(at); at < source_.size(); ++at)
      if (const std::size_t after = end_of(at, "#}"); after != npos) return go_to(after);
    wrong("a comment {# is not closed with #}");
  }
  // Whether the tag is {% raw %}; if so, reads all text up to {% endraw %}.
  bool raw(std::size_t at) {
    constexpr std::string_view kRaw = "raw", kEnd = "endraw";
    at = skip_space(at);
    if (!has(at, kRaw)) return false;
    at = skip_space(at + kRaw.size());
    if (!has(at, "%}") && !has(at, "-%}")) return false;
    go_to(has(at, "%}") ? at + 2 : skip_space(at + 3));
    for (std::size_t tag = source_.find("{%", at_); tag != npos; tag = source_.find("{%", tag + 1)) {
      const std::size_t sign = peek(tag + 2) == '-' || peek(tag + 2) == '+' ? 1 : 0;
      const std::size_t word = skip_space(tag + 2 + sign);
      if (!has(word, kEnd)) continue;
      const std::size_t after = end_of(skip_space(word + kEnd.size()), "%}");
      if (after == npos) continue;
      data_before(tag, true);
      go_to(after);
      return true;
    }
    if (at_ == source_.size()) return true;  // Jinja allows this
    wrong("{% raw %} is not closed with {% endraw %}");
  }
  void tag_until(std::size_t at, Token::Kind begin, std::string_view end, Token::Kind end_kind) {
    add(begin, "");
    go_to(at);
    open_.clear();
    while (at_ < source_.size()) {
      if (open_.empty()) {
        if (const std::size_t after = end_of(at_, end); after != npos) {
          add(end_kind, "");
          return go_to(after);
        }
      }
      const std::size_t next = skip_space(at_);
      if (next > at_)
        go_to(next);
      else
        token();
    }
    wrong(fmt::format("a tag is not closed with {}", end));
  }
  void token() {
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (is_name(c)) {
      std::size_t end = at_;
      while (end < source_.size() && is_name(source_[end])) ++end;
      add(Token::Kind::name, source_.substr(at_, end - at_));
      return go_to(end);
    }
    if (c == '\'' || c == '"') return text(c);
    constexpr std::array<std::string_view, 24> kSigns = {"//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(", ")", "{",
                                                         "}",  ">",  "<",  "=",  ".",  ":", "|", ","};
    const auto* sign = std::find_if(kSigns.begin(), kSigns.end(), [&](auto known) { return has(at_, known); });
    if (sign == kSigns.end())
      wrong(fmt::format("unexpected character {}", repr_of(source_.substr(at_, character_length(c)))));
    balance(c);
    add(Token::Kind::sign, std::string(*sign));
    go_to(at_ + sign->size());
  }
  void balance(char c) {
    if (c == '{') open_ += '}';
    if (c == '(') open_ += ')';
    if (c == '[') open_ += ']';
    if (c != '}' && c != ')' && c != ']') return;
    if (open_.empty() || open_.back() != c) wrong(fmt::format("unexpected '{}'", c));
    open_.pop_back();
  }
  std::size_t digits(std::size_t at) const {
    while (is_digit(peek(at))) ++at;
    return at;
  }
  void number() {
    std::size_t end = digits(at_);
    bool is_real = false;
    if (peek(end) == '.' && is_digit(peek(end + 1)) && (at_ == 0 || source_[at_ - 1] != '.')) {
      end = digits(end + 1);
      is_real = true;
    }
    if (peek(end) == 'e' || peek(end) == 'E') {
      const std::size_t exponent = end + (peek(end + 1) == '+' || peek(end + 1) == '-' ? 2 : 1);
      if (is_digit(peek(exponent))) {
        end = digits(exponent);
        is_real = true;
      }
    }
    if (!is_real && source_[at_] == '0' && source_.find_first_not_of('0', at_) < end) wrong("a number begins with 0");
    add(is_real ? Token::Kind::real : Token::Kind::integer, source_.substr(at_, end - at_));
    go_to(end);
  }
  void text(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) wrong(fmt::format("a text is not closed with {}", quote));
    add(Token::Kind::text, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    go_to(end + 1);
  }
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view kNames = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      if (const std::size_t known = kNames.find(c); known != npos) {
        out += kMeant[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code(text.substr(i + 1, size), size, 16, out);
        i += size;
      } else if (c >= '0' && c <= '7') {
        std::size_t size = 1;
        while (size < 3 && i + size < text.size() && text[i + size] >= '0' && text[i + size] <= '7') ++size;
        append_code(text.substr(i, size), size, 8, out);
        i += size - 1;
      } else if (c == 'N') {
        wrong("a character by its name (\\N) is not supported: write the character");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }
  void append_code(std::string_view digits, std::size_t wanted, int base, std::string& out) const {
    std::uint64_t code = 0;
    for (const char c : digits) {
      if (digit_of(c) >= base) wrong(fmt::format("the escape of a character needs {} digits", wanted));
      code = code * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit_of(c));
    }
    if (digits.size() < wanted) wrong(fmt::format("the escape of a character needs {} digits", wanted));
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) wrong(fmt::format("U+{:04X} is not a character", code));
    append_character(static_cast<char32_t>(code), out);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_;  // the closing brackets that are still expected, innermost last
  std::vector<Token> tokens_;
};

std::string shown(const Token& token) {
  constexpr std::array<std::string_view, 5> kFirst = {"text", "{{", "}}", "{%", "%}"};  // by Kind
  static_assert(kFirst.size() == static_cast<std::size_t>(Token::Kind::block_end) + 1);
  if (token.kind == Token::Kind::end) return "the end of the template";
  const auto kind = static_cast<std::size_t>(token.kind);
  return kind < kFirst.size() ? std::string(kFirst[kind]) : fmt::format("'{}'", excerpt(token.text, 64));
}

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(source).run();
}

void TokenStream::unexpected(std::string_view expected) const {
  wrong(fmt::format("expected {}, found {}", expected, shown(current())));
}

}  // namespace strata::text::jinja
