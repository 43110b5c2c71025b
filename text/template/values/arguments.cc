#include "text/template/values/arguments.h"

#include <algorithm>

namespace strata::text::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments, std::span<const std::string_view> names)
    : function_(function) {
  if (arguments.positional.size() > names.size())
    throw Fault("{} takes at most {} arguments, not {}", function, names.size(), arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) given_.emplace_back(names[i], arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::ranges::find(names, name);
    if (known == names.end()) throw Fault("{} has no parameter '{}'", function, name);
    if (find(*known)) throw Fault("{} is given '{}' twice", function, name);
    given_.emplace_back(*known, value);
  }
}

const Value* Parameters::find(std::string_view name) const {
  for (const auto& [known, value] : given_)
    if (known == name) return &value;
  return nullptr;
}
const Value* Parameters::find_some(std::string_view name) const {
  const Value* found = find(name);
  return found && !found->is(Kind::none) ? found : nullptr;
}
const Value& Parameters::at(std::string_view name) const {
  const Value* found = find(name);
  if (!found) throw Fault("{} needs its argument '{}'", function_, name);
  return *found;
}
bool Parameters::flag(std::string_view name, bool otherwise) const {
  const Value* found = find(name);
  return found ? found->truthy() : otherwise;
}
std::int64_t Parameters::integer(std::string_view name, std::int64_t otherwise) const {
  const Value* found = find(name);
  return found ? integer_of(*found, function_) : otherwise;
}
std::string Parameters::text(std::string_view name, std::string_view otherwise) const {
  const Value* found = find(name);
  return found ? text_of(*found, function_) : std::string(otherwise);
}

}  // namespace strata::text::jinja
