#pragma once
// text/template/syntax/ turns a template's source into a tree (here): lexer.h,
// expression_parser.h, parser.cc.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/values/value.h"

// A template's tree, which parse() builds and the interpreter walks.
namespace strata::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Expression {
  enum class Kind {
    constant,   // value
    name,       // text
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value...
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], null if omitted
    call,       // parts[0](arguments)
    filter,     // parts[0] | text(arguments); parts[0] is null in a block's filter
    test,       // parts[0] is text(arguments)
    unary,      // text: not, -, +
    binary,     // parts[0] text parts[1]; text: + - * / // %
    compare,    // parts[0] operators[0] parts[1] operators[1] parts[2]...
    concat,     // parts
    all,        // parts[0] and parts[1]
    any,        // parts[0] or parts[1]
    choice,     // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind;
  int line;
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> operators = {};
  CallArguments arguments = {};
  int height = 1;  // nested expressions, including this one
};

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name, attribute;
  std::vector<Target> parts;  // the targets of a tuple
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: none
};

struct Statement {
  enum class Kind {
    data,          // text
    output,        // expressions
    set,           // target, expressions[0]
    set_block,     // target, blocks[0], expressions[0]: filters, or null
    loop,          // target in expressions[0] if expressions[1] (or null): blocks[0], else blocks[1]
    condition,     // expressions[i]: blocks[i]; one more block is the else
    macro,         // text(parameters): blocks[0]
    filter,        // expressions[0]: blocks[0]
    generation,    // blocks[0]
    break_loop,    //
    continue_loop  //
  };
  Kind kind;
  int line;
  std::string text = {};
  std::vector<Target> targets = {};
  std::vector<ExpressionPtr> expressions = {};
  std::vector<Block> blocks = {};
  std::vector<Parameter> parameters = {};
};

// Parses a template as Jinja does, with loop controls and {% generation %} (parser.cc). `source` is UTF-8. Throws
// SyntaxFault, also for tags that need other files (include, import, extends).
Block parse(std::string_view source);

}  // namespace strata::text::jinja
