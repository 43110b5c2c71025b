#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "text/template/syntax/lexer.h"
#include "text/template/syntax/syntax.h"

namespace strata::text::jinja {

// Parses expressions according to Jinja's grammar.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression(bool with_choice = true);
  // A tuple of expressions separated by commas, or a single expression.
  ExpressionPtr tuple(bool with_choice = true, bool in_parentheses = false);
  // "|name(arguments)|..." applied to `on`. at_name: the first | is missing, as in {% filter name %}.
  ExpressionPtr filters(ExpressionPtr on, bool at_name);

 private:
  class Level;

  ExpressionPtr any();
  ExpressionPtr all();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr filtered();
  ExpressionPtr unary();
  ExpressionPtr primary();
  ExpressionPtr constant();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr index(ExpressionPtr node, int line);
  ExpressionPtr test(ExpressionPtr node);
  CallArguments arguments();
  using Rule = ExpressionPtr (ExpressionParser::*)();
  // Operands of one level of precedence with one of `operators` between them, left-associative.
  ExpressionPtr chain(Expression::Kind kind, Rule operand, std::initializer_list<std::string_view> operators);
  ExpressionPtr make(Expression node) const;

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace strata::text::jinja
