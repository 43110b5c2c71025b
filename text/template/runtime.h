#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/arguments.h"
#include "text/template/values/meter.h"
#include "text/template/values/value.h"

namespace strata::text::jinja {

// State shared by expressions, filters and methods: the limits, the objects created, and Python's protocols.
class Runtime : public Meter {
 public:
  explicit Runtime(const Limits& limits) : Meter(limits) {}

  Value text(std::string text, bool safe = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  // An iterator over the items, which can be used only once.
  Value iterator(std::vector<Value> items);
  // Creates an object that the runtime owns until the rendering is over.
  template <typename T>
  T& keep(std::unique_ptr<T> object) {
    take(sizeof(T));
    T& out = *object;
    objects_.push_back(std::move(object));
    return out;
  }

  // value.name, value[key], and the items of a loop over the value. Throw Fault for an undefined value.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value slice(const Value& value, const Value* first, const Value* last, const Value* step);
  std::vector<Value> items_of(const Value& value);
  Value call(const Value& callee, Arguments& arguments);
  Value filter(const std::string& name, const Value& value, Arguments& arguments);
  bool test(const std::string& name, const Value& value, Arguments& arguments);

 private:
  std::vector<std::unique_ptr<Object>> objects_;
};

// A filter, a method or a test, and its name in templates.
template <typename Call>
struct Named {
  std::string_view name;
  Call* call;
};
using Filter = Value(Runtime&, const Value&, Arguments&);
using Test = bool(Runtime&, const Value&, Arguments&);

std::span<const Named<Filter>> text_filters();
std::span<const Named<Filter>> sequence_filters();
std::span<const Named<Test>> is_tests();
std::span<const Named<Filter>> methods_of(Kind kind);

// Operators. `sign` is one of + - * / // % for binary(), and one of == != < <= > >= in, not in for compare().
Value binary(Runtime& runtime, const std::string& sign, const Value& a, const Value& b);
bool compare(Runtime& runtime, const std::string& sign, const Value& a, const Value& b);
Value negative(const Value& value);
bool contains(Runtime& runtime, const Value& container, const Value& item);

// pattern % value, with %s, %d and %%. Throws Fault for other formats.
std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value);
// pattern.format(...), with {}, {0} and {name}, also with :d or :s. Throws Fault for other fields.
std::string format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments);

}  // namespace strata::text::jinja
