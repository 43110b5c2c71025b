#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/quote.h"
#include "base/words.h"
#include "text/template/syntax/expression_parser.h"
#include "text/template/syntax/lexer.h"
#include "text/template/syntax/syntax.h"

namespace strata::text::jinja {
namespace {

using K = Statement::Kind;
constexpr int kMaxBlockDepth = 60;  // nested blocks; Python, which runs Jinja's templates, allows 100

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokens_of(source)), expressions_(tokens_) {}

  Block run() {
    Block out = block({});
    if (!tokens_.is(Token::Kind::end)) tokens_.unexpected("text or a tag");
    return out;
  }

 private:
  // Parses up to a tag with one of the names `ends`. That name is then the current token.
  Block block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxBlockDepth)
      tokens_.wrong(fmt::format("blocks are nested deeper than {} levels", kMaxBlockDepth));
    const int begin = tokens_.line();
    Block out;
    for (;;) {
      const int line = tokens_.line();
      if (tokens_.is(Token::Kind::data)) {
        out.push_back({K::data, line, tokens_.next().text});
      } else if (tokens_.is(Token::Kind::variable_begin)) {
        tokens_.next();
        out.push_back({K::output, line});
        out.back().expressions.push_back(expressions_.tuple());
        tokens_.expect(Token::Kind::variable_end, "}}");
      } else if (tokens_.is(Token::Kind::block_begin)) {
        tokens_.next();
        if (std::any_of(ends.begin(), ends.end(), [&](auto name) { return tokens_.is_name(name); })) break;
        out.push_back(statement());
        end_tag();
      } else {
        if (ends.size() > 0)
          throw SyntaxFault{fmt::format("{{% {} %}} is missing for the block that begins here", *(ends.end() - 1)),
                            begin};
        break;
      }
    }
    --depth_;
    return out;
  }
  void end_tag() { tokens_.expect(Token::Kind::block_end, "%}"); }
  // Parses the rest of a tag, and the block after it.
  Block body(std::initializer_list<std::string_view> ends) {
    tokens_.skip_sign(":");
    end_tag();
    return block(ends);
  }
  // Like body(), but also consumes the name of the closing tag.
  Block whole_body(std::string_view end) {
    Block out = body({end});
    tokens_.next();
    return out;
  }

  Statement statement() {
    const int line = tokens_.line();
    const std::string tag = tokens_.any_name("the name of a tag");
    if (tag == "if") return condition(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return set(line);
    if (tag == "macro") return macro(line);
    if (tag == "generation") return generation(line);
    if (tag == "break" || tag == "continue") {
      if (!in_loop_) throw SyntaxFault{fmt::format("{{% {} %}} is outside a loop", tag), line};
      return {tag == "break" ? K::break_loop : K::continue_loop, line};
    }
    if (tag == "filter") {
      Statement out{K::filter, line};
      out.expressions.push_back(expressions_.filters(nullptr, true));
      out.blocks.push_back(apart("endfilter", in_loop_));
      return out;
    }
    throw SyntaxFault{
        fmt::format("the tag {{% {} %}} is not supported in a chat template: use if, for, break, continue, "
                    "set, macro, filter, generation or raw",
                    excerpt(tag, 64)),
        line};
  }

  // Parses a body whose {% break %} and {% continue %} may apply to an outer loop (`in_loop`) or not.
  Block apart(std::string_view end, bool in_loop) {
    const bool before = std::exchange(in_loop_, in_loop);
    Block out = whole_body(end);
    in_loop_ = before;
    return out;
  }

  Statement condition(int line) {
    Statement out{K::condition, line};
    for (;;) {
      out.expressions.push_back(expressions_.tuple(false));
      out.blocks.push_back(body({"elif", "else", "endif"}));
      if (tokens_.skip_name("elif")) continue;
      if (tokens_.skip_name("else")) out.blocks.push_back(body({"endif"}));
      tokens_.next();
      return out;
    }
  }

  Statement loop(int line) {
    Statement out{K::loop, line};
    out.targets.push_back(target(false));
    tokens_.expect_name("in");
    out.expressions.push_back(expressions_.tuple(false));
    out.expressions.push_back(tokens_.skip_name("if") ? expressions_.expression() : nullptr);
    if (tokens_.is_name("recursive")) tokens_.wrong("recursive loops are not supported: use a macro");
    const bool before = std::exchange(in_loop_, true);
    out.blocks.push_back(body({"else", "endfor"}));
    in_loop_ = before;
    out.blocks.emplace_back();
    if (tokens_.skip_name("else"))
      out.blocks.back() = whole_body("endfor");
    else
      tokens_.next();
    return out;
  }

  Statement set(int line) {
    Statement out{K::set, line};
    out.targets.push_back(target(true));
    if (tokens_.skip_sign("=")) {
      out.expressions.push_back(expressions_.tuple());
      return out;
    }
    out.kind = K::set_block;
    out.expressions.push_back(expressions_.filters(nullptr, false));
    out.blocks.push_back(apart("endset", in_loop_));
    return out;
  }

  Statement macro(int line) {
    Statement out{K::macro, line, tokens_.any_name("the name of a macro")};
    tokens_.in_brackets("(", ")", [&] {
      out.parameters.push_back({tokens_.any_name("the name of a parameter"), nullptr});
      if (tokens_.skip_sign("="))
        out.parameters.back().otherwise = expressions_.expression();
      else if (out.parameters.size() > 1 && out.parameters[out.parameters.size() - 2].otherwise)
        tokens_.wrong("a parameter without a default follows one with a default");
    });
    out.blocks.push_back(apart("endmacro", false));
    return out;
  }

  Statement generation(int line) {
    Statement out{K::generation, line};
    if (in_generation_) tokens_.wrong("a {% generation %} block cannot be inside another one");
    in_generation_ = true;
    out.blocks.push_back(apart("endgeneration", false));
    in_generation_ = false;
    return out;
  }

  Target target(bool with_attribute) {
    if (++depth_ > kMaxBlockDepth)
      tokens_.wrong(fmt::format("targets are nested deeper than {} levels", kMaxBlockDepth));
    Target out;
    bool is_tuple = false;
    for (;;) {
      out.parts.push_back(single_target(with_attribute));
      if (!tokens_.skip_sign(",")) break;
      is_tuple = true;
      if (tokens_.is_name("in") || tokens_.is_sign("=") || tokens_.is_sign(")")) break;
    }
    --depth_;
    if (is_tuple) return out;
    Target only = std::move(out.parts.front());
    return only;
  }
  Target single_target(bool with_attribute) {
    if (tokens_.skip_sign("(")) {
      Target out = target(with_attribute);
      tokens_.expect_sign(")");
      return out;
    }
    Target out;
    out.name = tokens_.any_name("a name to assign to");
    if (has_word("true false none True False None", out.name))
      tokens_.wrong(fmt::format("{} cannot be assigned to", out.name));
    if (with_attribute && tokens_.skip_sign(".")) out.attribute = tokens_.any_name("the name of an attribute");
    return out;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  bool in_loop_ = false, in_generation_ = false;
};

}  // namespace

Block parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace strata::text::jinja
