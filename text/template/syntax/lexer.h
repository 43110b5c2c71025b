#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text::jinja {

struct Token {
  enum class Kind { data, variable_begin, variable_end, block_begin, block_end, name, text, integer, real, sign, end };
  Kind kind;
  std::string text;  // the text; for a string literal, without quotes and escapes
  int line;
};

// The reason and the line of a syntax error in a template.
struct SyntaxFault {
  std::string message;
  int line;
};

// The tokens of a template, with trim_blocks and lstrip_blocks; the last token is an end. `source` is UTF-8. Throws
// SyntaxFault.
std::vector<Token> tokens_of(std::string_view source);

// The tokens of a template, read from front to back.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  // Returns the current token and moves past it; the end is never passed.
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(Token::Kind::sign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(Token::Kind::name) && current().text == name; }
  bool skip_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) unexpected(std::string("'") + std::string(sign) + "'");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(std::string("'") + std::string(name) + "'");
  }
  // Reads `open`, items (each by read()) with commas between them, and `close`; a comma may follow the last item.
  template <typename Read>
  void in_brackets(std::string_view open, std::string_view close, const Read& read) {
    expect_sign(open);
    while (!is_sign(close)) {
      read();
      if (!skip_sign(",")) break;
    }
    expect_sign(close);
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (!is(kind)) unexpected(what);
    next();
  }
  std::string any_name(std::string_view what) {
    if (!is(Token::Kind::name)) unexpected(what);
    return next().text;
  }
  [[noreturn]] void unexpected(std::string_view expected) const;
  [[noreturn]] void wrong(std::string message) const { throw SyntaxFault{std::move(message), line()}; }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace strata::text::jinja
