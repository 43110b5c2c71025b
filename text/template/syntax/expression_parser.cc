#include "text/template/syntax/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/number.h"

namespace strata::text::jinja {
namespace {

using E = Expression::Kind;
// The maximum nesting of expressions while parsing (brackets are two levels), and the maximum height of a tree of
// operators. Python, which runs Jinja's templates, allows 200.
constexpr int kMaxDepth = 300, kMaxHeight = 400;

template <typename... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> out;
  (out.push_back(std::move(parts)), ...);
  return out;
}

}  // namespace

// One more level of brackets.
class ExpressionParser::Level {
 public:
  explicit Level(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxDepth)
      parser_.tokens_.wrong(fmt::format("an expression is nested deeper than {} levels", kMaxDepth));
  }
  ~Level() { --parser_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  ExpressionParser& parser_;
};

ExpressionPtr ExpressionParser::make(Expression node) const {
  const auto count = [&](const ExpressionPtr& part) {
    if (part) node.height = std::max(node.height, part->height + 1);
  };
  for (const auto& part : node.parts) count(part);
  for (const auto& part : node.arguments.positional) count(part);
  for (const auto& [name, part] : node.arguments.named) count(part);
  if (node.height > kMaxHeight) tokens_.wrong(fmt::format("an expression has more than {} levels", kMaxHeight));
  return std::make_unique<const Expression>(std::move(node));
}

ExpressionPtr ExpressionParser::expression(bool with_choice) {
  const Level level(*this);
  ExpressionPtr node = any();
  while (with_choice && tokens_.is_name("if")) {
    const int line = tokens_.next().line;
    ExpressionPtr condition = any();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    node = make({E::choice, line, "", {}, parts_of(std::move(node), std::move(condition), std::move(otherwise))});
  }
  return node;
}

ExpressionPtr ExpressionParser::tuple(bool with_choice, bool in_parentheses) {
  const int line = tokens_.line();
  const auto ends = [&] {
    return tokens_.is(Token::Kind::variable_end) || tokens_.is(Token::Kind::block_end) || tokens_.is_sign(")");
  };
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (!ends()) {
    parts.push_back(expression(with_choice));
    if (!tokens_.skip_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (!is_tuple && !in_parentheses) tokens_.unexpected("an expression");
  return make({E::tuple, line, "", {}, std::move(parts)});
}

ExpressionPtr ExpressionParser::chain(E kind, Rule operand, std::initializer_list<std::string_view> operators) {
  ExpressionPtr node = (this->*operand)();
  while ((tokens_.is(Token::Kind::sign) || tokens_.is(Token::Kind::name)) &&
         std::find(operators.begin(), operators.end(), tokens_.current().text) != operators.end()) {
    const Token sign = tokens_.next();
    ExpressionPtr right = (this->*operand)();
    node = make({kind, sign.line, sign.text, {}, parts_of(std::move(node), std::move(right))});
  }
  return node;
}

ExpressionPtr ExpressionParser::any() {
  return chain(E::any, &ExpressionParser::all, {"or"});
}
ExpressionPtr ExpressionParser::all() {
  return chain(E::all, &ExpressionParser::negation, {"and"});
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Level level(*this);
  const int line = tokens_.next().line;
  return make({E::unary, line, "not", {}, parts_of(negation())});
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
  Expression node{E::compare, tokens_.line(), "", {}, parts_of(sum())};
  for (;;) {
    const bool sign = tokens_.is(Token::Kind::sign) &&
                      std::find(kSigns.begin(), kSigns.end(), tokens_.current().text) != kSigns.end();
    if (sign || tokens_.is_name("in")) {
      node.operators.push_back(tokens_.next().text);
    } else if (tokens_.is_name("not") && tokens_.after().kind == Token::Kind::name && tokens_.after().text == "in") {
      tokens_.next();
      tokens_.next();
      node.operators.emplace_back("not in");
    } else {
      break;
    }
    node.parts.push_back(sum());
  }
  return node.operators.empty() ? std::move(node.parts.front()) : make(std::move(node));
}

ExpressionPtr ExpressionParser::sum() {
  return chain(E::binary, &ExpressionParser::concatenation, {"+", "-"});
}
ExpressionPtr ExpressionParser::product() {
  return chain(E::binary, &ExpressionParser::filtered, {"*", "/", "//", "%"});
}

ExpressionPtr ExpressionParser::concatenation() {
  Expression node{E::concat, tokens_.line(), "", {}, parts_of(product())};
  while (tokens_.skip_sign("~")) node.parts.push_back(product());
  return node.parts.size() == 1 ? std::move(node.parts.front()) : make(std::move(node));
}

ExpressionPtr ExpressionParser::filtered() {
  const Level level(*this);
  ExpressionPtr node = unary();
  for (;;) {
    if (tokens_.is_sign("|"))
      node = filters(std::move(node), false);
    else if (tokens_.is_name("is"))
      node = test(std::move(node));
    else if (tokens_.is_sign("("))
      node = postfix(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::unary() {
  if (!tokens_.is_sign("-") && !tokens_.is_sign("+")) return postfix(primary());
  const Token sign = tokens_.next();
  const Level level(*this);
  return postfix(make({E::unary, sign.line, sign.text, {}, parts_of(unary())}));
}

ExpressionPtr ExpressionParser::primary() {
  const int line = tokens_.line();
  if (tokens_.skip_sign("(")) {
    ExpressionPtr node = tuple(true, true);
    tokens_.expect_sign(")");
    return node;
  }
  if (tokens_.is_sign("[")) return list();
  if (tokens_.is_sign("{")) return dict();
  if (!tokens_.is(Token::Kind::name)) return constant();
  const std::string name = tokens_.next().text;
  if (name == "true" || name == "True") return make({E::constant, line, "", Value(true)});
  if (name == "false" || name == "False") return make({E::constant, line, "", Value(false)});
  if (name == "none" || name == "None") return make({E::constant, line, "", Value()});
  return make({E::name, line, name});
}

ExpressionPtr ExpressionParser::constant() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case Token::Kind::text: {
      std::string text;
      while (tokens_.is(Token::Kind::text)) text += tokens_.next().text;
      return make({E::constant, line, "", Value(std::move(text))});
    }
    case Token::Kind::integer: {
      const std::string& digits = tokens_.current().text;
      const auto number = parse_number<std::int64_t>(digits);
      if (!number) tokens_.wrong(fmt::format("the number {} is above 2^63 - 1", digits));
      tokens_.next();
      return make({E::constant, line, "", Value(*number)});
    }
    case Token::Kind::real: {
      const std::string& digits = tokens_.current().text;
      const auto number = parse_number<double>(digits);
      if (!number) tokens_.wrong(fmt::format("the number {} is out of range", digits));
      tokens_.next();
      return make({E::constant, line, "", Value(*number)});
    }
    default:
      tokens_.unexpected("an expression");
  }
}

ExpressionPtr ExpressionParser::list() {
  Expression node{E::list, tokens_.line()};
  tokens_.in_brackets("[", "]", [&] { node.parts.push_back(expression()); });
  return make(std::move(node));
}

ExpressionPtr ExpressionParser::dict() {
  Expression node{E::dict, tokens_.line()};
  tokens_.in_brackets("{", "}", [&] {
    node.parts.push_back(expression());
    tokens_.expect_sign(":");
    node.parts.push_back(expression());
  });
  return make(std::move(node));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  for (;;) {
    const int line = tokens_.line();
    if (tokens_.is_sign(".") || tokens_.is_sign("[")) {
      node = subscript(std::move(node));
    } else if (tokens_.is_sign("(")) {
      Expression call{E::call, line, "", {}, parts_of(std::move(node))};
      call.arguments = arguments();
      node = make(std::move(call));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr node) {
  const int line = tokens_.line();
  if (tokens_.skip_sign(".")) {
    if (tokens_.is(Token::Kind::name))
      return make({E::attribute, line, tokens_.next().text, {}, parts_of(std::move(node))});
    if (!tokens_.is(Token::Kind::integer)) tokens_.unexpected("the name of an attribute");
    ExpressionPtr number = constant();
    return make({E::item, line, "", {}, parts_of(std::move(node), std::move(number))});
  }
  tokens_.expect_sign("[");
  node = index(std::move(node), line);
  tokens_.expect_sign("]");
  return node;
}

ExpressionPtr ExpressionParser::index(ExpressionPtr node, int line) {
  ExpressionPtr first;
  if (!tokens_.is_sign(":")) {
    first = expression();
    if (!tokens_.is_sign(":")) return make({E::item, line, "", {}, parts_of(std::move(node), std::move(first))});
  }
  tokens_.expect_sign(":");
  ExpressionPtr last, step;
  if (!tokens_.is_sign(":") && !tokens_.is_sign("]")) last = expression();
  if (tokens_.skip_sign(":") && !tokens_.is_sign("]")) step = expression();
  return make({E::slice, line, "", {}, parts_of(std::move(node), std::move(first), std::move(last), std::move(step))});
}

CallArguments ExpressionParser::arguments() {
  const Level level(*this);
  CallArguments out;
  tokens_.in_brackets("(", ")", [&] {
    if (tokens_.is(Token::Kind::name) && tokens_.after().kind == Token::Kind::sign && tokens_.after().text == "=") {
      std::string name = tokens_.next().text;
      tokens_.next();
      out.named.emplace_back(std::move(name), expression());
    } else {
      if (!out.named.empty()) tokens_.wrong("a positional argument follows a named argument");
      out.positional.push_back(expression());
    }
  });
  return out;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr on, bool at_name) {
  while (at_name || tokens_.skip_sign("|")) {
    at_name = false;
    Expression node{E::filter, tokens_.line(), tokens_.any_name("the name of a filter"), {}, parts_of(std::move(on))};
    if (tokens_.is_sign("(")) node.arguments = arguments();
    on = make(std::move(node));
  }
  return on;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr node) {
  const int line = tokens_.next().line;  // the token `is`
  const bool negated = tokens_.skip_name("not");
  Expression out{E::test, line, tokens_.any_name("the name of a test"), {}, parts_of(std::move(node))};
  const bool is_keyword = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  const bool is_operand = tokens_.is(Token::Kind::name) || tokens_.is(Token::Kind::text) ||
                          tokens_.is(Token::Kind::integer) || tokens_.is(Token::Kind::real) || tokens_.is_sign("[") ||
                          tokens_.is_sign("{");
  if (tokens_.is_sign("(")) {
    out.arguments = arguments();
  } else if (is_operand && !is_keyword) {
    if (tokens_.is_name("is")) tokens_.wrong("a test follows a test: put the first one in parentheses");
    out.arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPtr tested = make(std::move(out));
  return negated ? make({E::unary, line, "not", {}, parts_of(std::move(tested))}) : std::move(tested);
}

}  // namespace strata::text::jinja
