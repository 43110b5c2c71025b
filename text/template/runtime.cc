#include "text/template/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "base/words.h"
#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

// The memory that a one-character text takes as a value.
constexpr std::uint64_t kCharacter = sizeof(Value) + sizeof(Value::Text) + sizeof(std::string_view);

template <typename Call>
Call* find_named(std::span<const Named<Call>> among, std::string_view name) {
  const auto found = std::ranges::find(among, name, &Named<Call>::name);
  return found == among.end() ? nullptr : found->call;
}
template <typename Call>
std::string names_of(std::span<const Named<Call>> among) {
  return fmt::format("{}", fmt::join(among | std::views::transform(&Named<Call>::name), ", "));
}

// Whether a method would modify its object. The sandbox does not provide these methods.
bool is_forbidden(const Value& value, std::string_view name) {
  return (value.is(Kind::dict) && has_word("clear pop popitem setdefault update", name)) ||
         (value.is(Kind::list) && has_word("append clear extend insert pop remove reverse sort", name));
}

std::string missing(const Value& value, std::string_view name) {
  if (value.is(Kind::none)) return fmt::format("'None' has no attribute '{}'", name);
  const std::string out = fmt::format("'{} object' has no attribute '{}'", value.type_name(), name);
  if (value.is(Kind::list)) return out + ": a list has no methods here";
  // A name that a dict does not have is usually a key.
  const bool is_method = value.is(Kind::text) || (value.is(Kind::dict) && name == "copy");
  if (!is_method) return out;
  return fmt::format("{}: a {} has {}", out, value.type_name(), names_of(methods_of(value.kind())));
}

// A method; an undefined value for a method that would modify its object; otherwise of kind none.
Value method_or_none(const Value& value, const std::string& name) {
  if (is_forbidden(value, name))
    return Value::undefined(
        fmt::format("'{}' would change a {}, which templates may not: use a namespace", name, value.type_name()));
  return find_named(methods_of(value.kind()), name) ? Value::method(value, name) : Value();
}

// The place of element `index`, counted from the end if it is negative. False if there is none.
bool place_of(std::int64_t index, std::size_t size, std::size_t& place) {
  const auto length = static_cast<std::int64_t>(size);
  if (index < -length || index >= length) return false;
  place = static_cast<std::size_t>(index < 0 ? index + length : index);
  return true;
}

// Python's slice.indices(): every `step`-th place from first to last.
struct Places {
  Places(std::size_t size, const Value* first, const Value* last, const Value* step) {
    const auto length = static_cast<std::int64_t>(size);
    const auto given = [](const Value* value) { return value && !value->is(Kind::none); };
    by = given(step) ? integer_of(*step, "a slice") : 1;
    if (by == 0) throw Fault("the step of a slice is 0");
    const std::int64_t lower = by < 0 ? -1 : 0, upper = by < 0 ? length - 1 : length;
    const auto bound = [&](const Value* value, std::int64_t otherwise) {
      if (!given(value)) return otherwise;
      const std::int64_t index = integer_of(*value, "a slice");
      return index < 0 ? std::max(index + length, lower) : std::min(index, upper);
    };
    begin = bound(first, by < 0 ? upper : lower);
    const std::int64_t end = bound(last, by < 0 ? lower : upper);
    const std::uint64_t span = static_cast<std::uint64_t>(by < 0 ? std::max<std::int64_t>(begin - end, 0)
                                                                 : std::max<std::int64_t>(end - begin, 0));
    // Also correct for the smallest integer.
    const std::uint64_t stride = by < 0 ? 0 - static_cast<std::uint64_t>(by) : static_cast<std::uint64_t>(by);
    count = static_cast<std::size_t>(span / stride + (span % stride != 0 ? 1 : 0));
  }
  std::size_t at(std::size_t i) const { return static_cast<std::size_t>(begin + static_cast<std::int64_t>(i) * by); }

  std::int64_t begin, by;
  std::size_t count;
};

}  // namespace

Value Runtime::text(std::string text, bool safe) {
  take(text.size());
  return {std::move(text), safe};
}
Value Runtime::list(std::vector<Value> items) {
  take(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}
Value Runtime::tuple(std::vector<Value> items) {
  take(items.size() * sizeof(Value));
  return Value::tuple(std::move(items));
}
Value Runtime::iterator(std::vector<Value> items) {
  take(items.size() * sizeof(Value));
  return Value::object(keep(std::make_unique<Iterator>(std::move(items))));
}

Value Runtime::attribute(const Value& value, const std::string& name) {
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (value.is(Kind::object)) return value.object().attribute(name);
  if (Value method = method_or_none(value, name); !method.is(Kind::none)) return method;
  if (value.is(Kind::dict))
    if (const Value* found = value.find(name)) return *found;
  return Value::undefined(missing(value, name));
}

Value Runtime::item(const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (value.is(Kind::dict)) {
    if (const Value* found = value.find_value(key, *this)) return *found;
  } else if (key.is(Kind::integer) || key.is(Kind::boolean)) {
    std::size_t place = 0;
    if (value.is(Kind::text)) {
      read(value.text().size());
      if (place_of(key.integer(), length_of(value.text()), place)) {
        const std::size_t byte = byte_of(value.text(), place);
        return {value.text().substr(byte, character_length(value.text()[byte])), value.safe()};
      }
    } else if ((value.is(Kind::list) || value.is(Kind::tuple)) &&
               place_of(key.integer(), value.items().size(), place)) {
      return value.items()[place];
    }
    return Value::undefined(fmt::format("'{} object' has no element {}", value.type_name(), key.integer()));
  }
  if (!key.is(Kind::text)) return Value::undefined(missing(value, key.to_text(*this)));
  if (value.is(Kind::object)) return value.object().attribute(key.text());
  if (Value method = method_or_none(value, key.text()); !method.is(Kind::none)) return method;
  return Value::undefined(missing(value, key.text()));
}

Value Runtime::slice(const Value& value, const Value* first, const Value* last, const Value* by) {
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (value.is(Kind::text)) {
    read(value.text().size());
    const bool ascii = std::none_of(value.text().begin(), value.text().end(), [](char c) { return c < 0; });
    const std::size_t length = ascii ? value.text().size() : length_of(value.text());
    const Places places(length, first, last, by);
    if (places.by == 1) {
      const std::size_t begin = byte_of(value.text(), places.at(0)),
                        end = byte_of(value.text(), places.at(places.count));
      return text(value.text().substr(begin, end - begin), value.safe());
    }
    if (!ascii) take(length, sizeof(std::string_view));
    const auto characters = ascii ? std::vector<std::string_view>() : characters_of(value.text());
    std::string out;
    for (std::size_t i = 0; i < places.count; ++i)
      out += ascii ? std::string_view(value.text()).substr(places.at(i), 1) : characters[places.at(i)];
    return text(std::move(out), value.safe());
  }
  if (!value.is(Kind::list) && !value.is(Kind::tuple))
    return Value::undefined(fmt::format("a {} cannot be sliced", value.type_name()));
  std::vector<Value> out;
  const Places places(value.items().size(), first, last, by);
  for (std::size_t i = 0; i < places.count; ++i) out.push_back(value.items()[places.at(i)]);
  return value.is(Kind::list) ? list(std::move(out)) : tuple(std::move(out));
}

std::vector<Value> Runtime::items_of(const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::undefined:
      return out;
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      step(value.items().size());
      return value.items();
    case Kind::dict:
      step(value.pairs().size());
      for (const auto& [key, unused] : value.pairs()) out.push_back(key);
      return out;
    case Kind::text:
      take(value.text().size(), kCharacter);
      for (const std::string_view character : characters_of(value.text()))
        out.push_back(Value(std::string(character), value.safe()));
      return out;
    case Kind::object:
      if (auto* iterator = dynamic_cast<Iterator*>(&value.object())) {
        while (const Value* next = iterator->next()) out.push_back(*next);
        step(out.size());
        return out;
      }
      [[fallthrough]];
    default:
      throw Fault("a {} cannot be iterated over", value.type_name());
  }
}

Value Runtime::call(const Value& callee, Arguments& arguments) {
  step();
  if (callee.is(Kind::undefined)) throw Fault(callee.why());
  if (callee.is(Kind::method)) {
    const auto& [self, name] = callee.method();
    return find_named(methods_of(self->kind()), name)(*this, *self, arguments);
  }
  if (callee.is(Kind::object)) return callee.object().call(arguments);
  throw Fault("a {} cannot be called", callee.type_name());
}

Value Runtime::filter(const std::string& name, const Value& value, Arguments& arguments) {
  step();
  Filter* found = find_named(text_filters(), name);
  if (!found) found = find_named(sequence_filters(), name);
  if (!found)
    throw Fault("there is no filter '{}', only {}, {}", name, names_of(text_filters()), names_of(sequence_filters()));
  return found(*this, value, arguments);
}

bool Runtime::test(const std::string& name, const Value& value, Arguments& arguments) {
  step();
  Test* found = find_named(is_tests(), name);
  if (!found) throw Fault("there is no test '{}', only {}", name, names_of(is_tests()));
  return found(*this, value, arguments);
}

}  // namespace strata::text::jinja
