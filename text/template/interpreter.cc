#include "text/template/interpreter.h"

#include <fmt/format.h>

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

// A {% macro %}, or the caller() of a {% call %} block.
class Interpreter::Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& statement, ScopePtr scope)
      : interpreter_(interpreter), statement_(statement), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "macro"; }
  bool callable() const override { return true; }
  Value attribute(const std::string& name) override {
    return name == "name" ? Value(shown_name()) : Object::attribute(name);
  }
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
  std::string shown_name() const { return statement_.kind == K::call ? "caller" : statement_.text; }

  void bind(Arguments& arguments, Scope& scope) const {
    const auto& parameters = statement_.parameters;
    std::vector<bool> used(arguments.named.size());
    const auto take_named = [&](std::string_view name) -> const Value* {
      for (std::size_t i = 0; i < arguments.named.size(); ++i) {
        if (arguments.named[i].first != name) continue;
        used[i] = true;
        return &arguments.named[i].second;
      }
      return nullptr;
    };
    if (statement_.uses_caller) {
      const Value* caller = take_named("caller");
      scope.set("caller", caller ? *caller : Value::undefined("the macro is not called by a {% call %} block"));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      const Value* named = take_named(parameter.name);
      if (named && i < arguments.positional.size())
        throw Fault("the macro '{}' is given '{}' twice", shown_name(), parameter.name);
      scope.set(parameter.name, named                             ? *named
                                : i < arguments.positional.size() ? arguments.positional[i]
                                : parameter.otherwise
                                    ? interpreter_.evaluate(*parameter.otherwise, scope)
                                    : Value::undefined(fmt::format("the macro '{}' was called without '{}'",
                                                                   shown_name(), parameter.name)));
    }
    rest(arguments, used, scope);
  }
  void rest(Arguments& arguments, const std::vector<bool>& used, Scope& scope) const {
    const std::size_t known = statement_.parameters.size(), given = arguments.positional.size();
    if (statement_.uses_varargs) {
      std::vector<Value> more;
      for (std::size_t i = known; i < given; ++i) more.push_back(arguments.positional[i]);
      scope.set("varargs", Value::tuple(std::move(more)));
    } else if (given > known) {
      throw Fault("the macro '{}' takes at most {} arguments, not {}", shown_name(), known, given);
    }
    std::vector<std::pair<Value, Value>> more;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i]) continue;
      const auto& [name, value] = arguments.named[i];
      if (!statement_.uses_kwargs || name == "caller")
        throw Fault("the macro '{}' has no parameter '{}'", shown_name(), name);
      more.emplace_back(Value(name), value);
    }
    if (statement_.uses_kwargs) scope.set("kwargs", Value::dict(std::move(more)));
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
    case K::call:
      call_block(statement, scope, out);
      return Flow::next;
    case K::with: {
      const auto inner = std::make_shared<Scope>(scope);
      with(statement, *scope, *inner);
      return execute(statement.blocks[0], inner, out);
    }
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

void Interpreter::call_block(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Expression& call = *statement.expressions[0];
  const Value callee = evaluate(*call.parts[0], *scope);
  Arguments given = arguments(call.arguments, *scope);
  given.named.emplace_back("caller", Value::object(runtime_.keep(std::make_unique<Macro>(*this, statement, scope))));
  line_ = call.line;
  write(runtime_.call(callee, given), out);
}

void Interpreter::with(const Statement& statement, Scope& outer, Scope& inner) {
  std::vector<Value> values;
  for (const auto& expression : statement.expressions) values.push_back(evaluate(*expression, outer));
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], std::move(values[i]), inner);
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
