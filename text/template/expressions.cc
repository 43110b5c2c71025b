#include <fmt/format.h>

#include <utility>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/runtime.h"
#include "text/template/values/arguments.h"

// The part of the interpreter that evaluates expressions.
namespace strata::text::jinja {

using E = Expression::Kind;

Value Interpreter::evaluate(const Expression& node, Scope& scope) {
  runtime_.enter();  // left below; after a Fault, the whole rendering ends
  runtime_.step();
  line_ = node.line;
  Value out;
  switch (node.kind) {
    case E::constant:
      out = node.value;
      break;
    case E::name:
      out = name(node, scope);
      break;
    case E::list:
    case E::tuple:
    case E::dict:
      out = collection(node, scope);
      break;
    case E::attribute: {
      const Value value = evaluate(*node.parts[0], scope);
      line_ = node.line;
      out = runtime_.attribute(value, node.text);
      break;
    }
    case E::item: {
      const Value value = evaluate(*node.parts[0], scope), key = evaluate(*node.parts[1], scope);
      line_ = node.line;
      out = runtime_.item(value, key);
      break;
    }
    case E::slice:
      out = slice(node, scope);
      break;
    case E::call: {
      const Value callee = evaluate(*node.parts[0], scope);
      Arguments given = arguments(node.arguments, scope);
      line_ = node.line;
      out = runtime_.call(callee, given);
      break;
    }
    case E::filter:
      out = filtered(&node, {}, scope);
      break;
    case E::test: {
      const Value value = evaluate(*node.parts[0], scope);
      Arguments given = arguments(node.arguments, scope);
      line_ = node.line;
      out = runtime_.test(node.text, value, given);
      break;
    }
    case E::unary:
      out = unary(node, scope);
      break;
    case E::binary: {
      const Value left = evaluate(*node.parts[0], scope), right = evaluate(*node.parts[1], scope);
      line_ = node.line;
      out = binary(runtime_, node.text, left, right);
      break;
    }
    case E::compare:
      out = compared(node, scope);
      break;
    case E::concat:
      out = concatenated(node, scope);
      break;
    case E::all:
      out = evaluate(*node.parts[0], scope);
      if (out.truthy()) out = evaluate(*node.parts[1], scope);
      break;
    case E::any:
      out = evaluate(*node.parts[0], scope);
      if (!out.truthy()) out = evaluate(*node.parts[1], scope);
      break;
    case E::choice:
      if (evaluate(*node.parts[1], scope).truthy())
        out = evaluate(*node.parts[0], scope);
      else if (node.parts[2])
        out = evaluate(*node.parts[2], scope);
      else
        out = Value::undefined("an inline `if` without `else` is false");
      break;
  }
  runtime_.leave();
  return out;
}

Value Interpreter::evaluate_or(const ExpressionPtr& node, Scope& scope, Value otherwise) {
  return node ? evaluate(*node, scope) : std::move(otherwise);
}

Value Interpreter::name(const Expression& node, Scope& scope) {
  if (const Value* found = scope.find(node.text)) return *found;
  if (const Value* found = variables_.find(node.text)) return *found;
  if (const Value* found = global(node.text)) return *found;
  return Value::undefined(fmt::format("'{}' is undefined", node.text));
}

Value* Interpreter::global(std::string_view name) {
  if (const auto it = globals_.find(name); it != globals_.end()) return &it->second;
  Object* made = make_global(runtime_, name, now_);
  if (!made) return nullptr;
  return &globals_.emplace(name, Value::object(*made)).first->second;
}

Value Interpreter::collection(const Expression& node, Scope& scope) {
  std::vector<Value> items;
  for (const auto& part : node.parts) items.push_back(evaluate(*part, scope));
  if (node.kind == E::list) return runtime_.list(std::move(items));
  if (node.kind == E::tuple) return runtime_.tuple(std::move(items));
  runtime_.take(items.size() * sizeof(Value));
  std::vector<std::pair<Value, Value>> pairs;
  for (std::size_t i = 0; i < items.size(); i += 2) pairs.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  return Value::dict(std::move(pairs), runtime_);
}

Value Interpreter::slice(const Expression& node, Scope& scope) {
  const Value value = evaluate(*node.parts[0], scope), first = evaluate_or(node.parts[1], scope, {}),
              last = evaluate_or(node.parts[2], scope, {}), step = evaluate_or(node.parts[3], scope, {});
  line_ = node.line;
  return runtime_.slice(value, &first, &last, &step);
}

Value Interpreter::unary(const Expression& node, Scope& scope) {
  Value value = evaluate(*node.parts[0], scope);
  line_ = node.line;
  if (node.text == "not") return !value.truthy();
  if (node.text == "-") return negative(value);
  if (value.is(Kind::real)) return value;
  return integer_of(value, "+");
}

Value Interpreter::compared(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1], scope);
    line_ = node.line;
    if (!compare(runtime_, node.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::concatenated(const Expression& node, Scope& scope) {
  std::string out;
  for (const auto& part : node.parts) write(evaluate(*part, scope), out);
  return Value(std::move(out));
}

Value Interpreter::filtered(const Expression* chain, Value value, Scope& scope) {
  if (!chain) return value;
  if (chain->parts[0] && chain->parts[0]->kind == E::filter)
    value = filtered(chain->parts[0].get(), std::move(value), scope);
  else if (chain->parts[0])
    value = evaluate(*chain->parts[0], scope);
  Arguments given = arguments(chain->arguments, scope);
  line_ = chain->line;
  return runtime_.filter(chain->text, value, given);
}

Arguments Interpreter::arguments(const CallArguments& given, Scope& scope) {
  Arguments out;
  for (const auto& argument : given.positional) out.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : given.named) out.named.emplace_back(name, evaluate(*argument, scope));
  return out;
}

}  // namespace strata::text::jinja
