#pragma once
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text::jinja {

// How much one rendering may take before it is refused.
struct Limits {
  std::uint64_t steps = 50'000'000;              // nodes, and pieces of 64 bytes that are read or written
  std::uint64_t bytes = std::uint64_t{1} << 30;  // of texts and lists that the template makes, all together
  int depth = 1000;                              // expressions, blocks and macros in each other
};

// What expressions, filters and methods share: the limits, what was made, and Python's protocols.
class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Throw Fault at a limit. What makes a text or list asks for its bytes first.
  void step(std::uint64_t steps = 1);
  void take(std::uint64_t bytes);
  // Throws Fault at the limit of depth; leave() undoes it.
  void enter();
  void leave() { --depth_; }

  Value text(std::string text, bool safe = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  // To be iterated over once.
  Value iterator(std::vector<Value> items);
  // Owned here until the rendering is over.
  template <typename T>
  T& keep(std::unique_ptr<T> object) {
    take(sizeof(T));
    T& out = *object;
    objects_.push_back(std::move(object));
    return out;
  }

  // value.name, value[key], and what a loop over the value gives. Throw Fault for an undefined value.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value slice(const Value& value, const Value* first, const Value* last, const Value* step);
  std::vector<Value> items_of(const Value& value);
  Value call(const Value& callee, Arguments& arguments);
  Value filter(const std::string& name, const Value& value, Arguments& arguments);
  bool test(const std::string& name, const Value& value, Arguments& arguments);

 private:
  const Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Filters and tests by their names; null if there is none.
using Filter = Value (*)(Runtime&, const Value&, Arguments&);
using Test = bool (*)(Runtime&, const Value&, Arguments&);
Filter text_filter(std::string_view name);
Filter sequence_filter(std::string_view name);
Test find_test(std::string_view name);

// Methods of texts, dicts and lists that change nothing.
bool has_method(const Value& value, std::string_view name);
Value call_method(Runtime& runtime, const Value& self, const std::string& name, Arguments& arguments);

}  // namespace strata::text::jinja
