#include "text/template/interpreter.h"

#include <fmt/format.h>

#include <ranges>
#include <utility>

#include "text/template/builtins.h"
#include "text/template/values/arguments.h"

namespace strata::text::jinja {

using K = Statement::Kind;

// Enters one more level of blocks or expressions; the destructor leaves it.
class Interpreter::Deeper {
 public:
  explicit Deeper(Runtime& runtime) : runtime_(runtime) { runtime_.enter(); }
  ~Deeper() { runtime_.leave(); }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Runtime& runtime_;
};

class Interpreter::Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& statement, ScopePtr scope)
      : interpreter_(interpreter), statement_(statement), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "macro"; }
  Value call(Arguments& arguments) override {
    const Deeper deeper(interpreter_.runtime_);
    const auto scope = std::make_shared<Scope>(scope_);
    const int line = interpreter_.line_;
    bind(arguments, *scope);
    std::string out;
    interpreter_.execute(statement_.blocks[0], scope, out);
    interpreter_.line_ = line;
    return Value(std::move(out));
  }

 private:
  void bind(Arguments& arguments, Scope& scope) const {
    const auto names = statement_.parameters | std::views::transform(&Parameter::name);
    const Parameters given(fmt::format("the macro '{}'", statement_.text), arguments,
                           std::vector<std::string_view>(names.begin(), names.end()));
    for (const auto& [name, otherwise] : statement_.parameters) {
      if (const Value* value = given.find(name))
        scope.set(name, *value);
      else if (otherwise)
        scope.set(name, interpreter_.evaluate(*otherwise, scope));
      else
        scope.set(name, Value::undefined(fmt::format("the macro '{}' was called without '{}'", statement_.text, name)));
    }
  }

  Interpreter& interpreter_;
  const Statement& statement_;
  ScopePtr scope_;
};

Interpreter::Interpreter(const Value& variables, const Limits& limits, const std::tm& now)
    : runtime_(limits), variables_(variables), now_(now) {}

Rendered Interpreter::run(const Block& block) {
  execute(block, std::make_shared<Scope>(nullptr), rendered_.text);
  return std::move(rendered_);
}

void Interpreter::append(std::string_view text, std::string& out) {
  runtime_.take(text.size());
  out += text;
}

void Interpreter::write(const Value& value, std::string& out) {
  if (value.is(Kind::text))
    append(value.text(), out);
  else
    append(value.to_text(runtime_), out);
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePtr& scope, std::string& out) {
  const Deeper deeper(runtime_);
  for (const Statement& statement : block) {
    runtime_.step();
    line_ = statement.line;
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const ScopePtr& scope, std::string& out) {
  switch (statement.kind) {
    case K::data:
      append(statement.text, out);
      return Flow::next;
    case K::output:
      for (const auto& expression : statement.expressions) write(evaluate(*expression, *scope), out);
      return Flow::next;
    case K::set:
      assign(statement.targets[0], evaluate(*statement.expressions[0], *scope), *scope);
      return Flow::next;
    case K::set_block:
    case K::filter: {
      std::string text;
      const Flow flow = execute(statement.blocks[0], std::make_shared<Scope>(scope), text);
      if (flow != Flow::next) return flow;
      Value value = filtered(statement.expressions[0].get(), Value(std::move(text)), *scope);
      if (statement.kind == K::filter)
        write(value, out);
      else
        assign(statement.targets[0], std::move(value), *scope);
      return Flow::next;
    }
    case K::loop:
      return loop(statement, scope, out);
    case K::condition:
      return condition(statement, scope, out);
    case K::macro:
      scope->set(statement.text, Value::object(runtime_.keep(std::make_unique<Macro>(*this, statement, scope))));
      return Flow::next;
    case K::generation:
      return generation(statement, scope, out);
    case K::break_loop:
      return Flow::leave_loop;
    case K::continue_loop:
      return Flow::next_round;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::loop(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Expression* test = statement.expressions[1].get();
  Loop::Test passes;
  if (test) {
    passes = [this, test, &statement, scope](const Value& item) {
      Scope inner(scope);
      assign(statement.targets[0], item, inner);
      return evaluate(*test, inner).truthy();
    };
  }
  const Value over = evaluate(*statement.expressions[0], *scope);
  Loop& loop = runtime_.keep(std::make_unique<Loop>(runtime_.items_of(over), std::move(passes)));
  bool any = false;
  while (loop.advance()) {
    any = true;
    runtime_.step();
    const auto inner = std::make_shared<Scope>(scope);
    inner->set("loop", Value::object(loop));
    assign(statement.targets[0], loop.current(), *inner);
    if (execute(statement.blocks[0], inner, out) == Flow::leave_loop) break;
    line_ = statement.line;
  }
  loop.finish();
  return any ? Flow::next : execute(statement.blocks[1], std::make_shared<Scope>(scope), out);
}

Interpreter::Flow Interpreter::condition(const Statement& statement, const ScopePtr& scope, std::string& out) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (evaluate(*statement.expressions[i], *scope).truthy()) return execute(statement.blocks[i], scope, out);
  if (statement.blocks.size() == statement.expressions.size()) return Flow::next;
  return execute(statement.blocks.back(), scope, out);
}

Interpreter::Flow Interpreter::generation(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const std::size_t begin = out.size();
  const Flow flow = execute(statement.blocks[0], std::make_shared<Scope>(scope), out);
  if (&out == &rendered_.text)
    rendered_.generated.push_back({begin, out.size()});
  else
    rendered_.lost = true;
  return flow;
}

void Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (!target.parts.empty()) {
    if (value.is(Kind::undefined)) throw Fault(value.why());
    const std::vector<Value> items = runtime_.items_of(value);
    if (items.size() != target.parts.size()) throw Fault("{} values for {} names", items.size(), target.parts.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) return scope.set(target.name, std::move(value));
  const Value* found = scope.find(target.name);
  if (!found) found = variables_.find(target.name);
  auto* space = found && found->is(Kind::object) ? dynamic_cast<Namespace*>(&found->object()) : nullptr;
  if (!space) throw Fault("'{}' is not a namespace: only a namespace's attributes can be set", target.name);
  space->set(target.attribute, std::move(value));
}

}  // namespace strata::text::jinja
