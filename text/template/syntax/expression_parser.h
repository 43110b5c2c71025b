#pragma once
#include <initializer_list>
#include <set>
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
  // A tuple of expressions separated by commas, or a single expression. `end`: a name that ends it.
  ExpressionPtr tuple(bool with_choice = true, std::string_view end = {}, bool in_parentheses = false);
  // "|name(arguments)|..." applied to `on`. at_name: the first | is missing, as in {% filter name %}.
  ExpressionPtr filters(ExpressionPtr on, bool at_name);
  // The names read since this set was last cleared, for macros.
  std::set<std::string>& names() { return names_; }

 private:
  class Level;

  ExpressionPtr any();
  ExpressionPtr all();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
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
  std::set<std::string> names_;
  int depth_ = 0;
};

}  // namespace strata::text::jinja
