#pragma once
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/rendered.h"
#include "text/template/runtime.h"
#include "text/template/syntax/syntax.h"
#include "text/template/values/arguments.h"

namespace strata::text::jinja {

// The names set in one block, inside the scopes of the blocks around it. A macro keeps the scope of its definition.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  // Null if no block has set the name. `name` and the names passed to set() must live as long as the template.
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope; scope = scope->outer_.get())
      for (const auto& [known, value] : scope->names_)
        if (known == name) return &value;
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    for (auto& [known, old] : names_) {
      if (known != name) continue;
      old = std::move(value);
      return;
    }
    names_.emplace_back(name, std::move(value));
  }

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string_view, Value>> names_;
};

using ScopePtr = std::shared_ptr<Scope>;

// One rendering of a template, by walking its tree. Throws Fault; line() then returns the place.
class Interpreter {
 public:
  // `variables`, a dict, must outlive it.
  Interpreter(const Value& variables, const Limits& limits, const std::tm& now);

  Rendered run(const Block& block);
  int line() const { return line_; }

 private:
  class Macro;
  class Deeper;
  // How a block ended.
  enum class Flow { next, leave_loop, next_round };

  Flow execute(const Block& block, const ScopePtr& scope, std::string& out);
  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow loop(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow condition(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow generation(const Statement& statement, const ScopePtr& scope, std::string& out);
  void assign(const Target& target, Value value, Scope& scope);
  void write(const Value& value, std::string& out);
  void append(std::string_view text, std::string& out);

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_or(const ExpressionPtr& node, Scope& scope, Value otherwise);
  Value name(const Expression& node, Scope& scope);
  Value collection(const Expression& node, Scope& scope);
  Value slice(const Expression& node, Scope& scope);
  Value unary(const Expression& node, Scope& scope);
  Value compared(const Expression& node, Scope& scope);
  Value concatenated(const Expression& node, Scope& scope);
  // Applies a chain of filters to `value`, which takes the place of the innermost filter's operand.
  Value filtered(const Expression* chain, Value value, Scope& scope);
  Arguments arguments(const CallArguments& given, Scope& scope);
  Value* global(std::string_view name);

  Runtime runtime_;
  const Value& variables_;
  const std::tm now_;
  std::map<std::string, Value, std::less<>> globals_;
  int line_ = 1;
  Rendered rendered_;
};

}  // namespace strata::text::jinja
