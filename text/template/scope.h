#pragma once
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text::jinja {

// The names set in one block, nested in the scopes of the blocks around it. A macro keeps the scope in which it was
// defined.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  // Null if no block has set it. `name` and the names passed to set() live as long as the template.
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

}  // namespace strata::text::jinja
