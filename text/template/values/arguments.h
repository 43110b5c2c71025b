#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text::jinja {

// The arguments of a call. A callable takes those that it has parameters for; `Parameters` refuses the others.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by the names of a function's parameters, bound as in Python. Throws Fault for arguments without a
// parameter.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names)
      : Parameters(function, arguments, std::span(names.begin(), names.size())) {}
  // The texts of `names` must outlive it.
  Parameters(std::string_view function, const Arguments& arguments, std::span<const std::string_view> names);
  // Null if the call does not pass it.
  const Value* find(std::string_view name) const;
  // Null if the call does not pass it, or passes None.
  const Value* find_some(std::string_view name) const;
  // Throws Fault if the call does not pass it.
  const Value& at(std::string_view name) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  std::string text(std::string_view name, std::string_view otherwise) const;

 private:
  std::string function_;
  std::vector<std::pair<std::string_view, Value>> given_;
};

}  // namespace strata::text::jinja
