#pragma once
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"
#include "text/template/values/value.h"

// The names that exist in every template.
namespace strata::text::jinja {

// The variable `loop` of a {% for %}. As in Jinja, elements are tested when they are reached, but attributes that look
// ahead (last, nextitem, length) test them earlier.
class Loop : public Object {
 public:
  using Test = std::function<bool(const Value&)>;  // empty: all elements pass
  Loop(std::vector<Value> items, Test test) : items_(std::move(items)), test_(std::move(test)) {}

  // Advances to the next element; false at the end.
  bool advance();
  const Value& current() const { return *current_; }
  // Releases the elements; called when the loop is over.
  void finish();

  std::string_view type_name() const override { return "loop"; }
  Value attribute(const std::string& name) override;

 private:
  const Value* peek();
  std::int64_t length();

  std::vector<Value> items_;
  Test test_;
  std::size_t next_ = 0;
  std::int64_t index_ = -1;
  std::optional<Value> before_, current_, ahead_;
};

// The functions that every template can call: range, dict, namespace, raise_exception, strftime_now. Null for any other
// name. `runtime` owns the result.
Object* make_global(Runtime& runtime, std::string_view name, const std::tm& now);

}  // namespace strata::text::jinja
