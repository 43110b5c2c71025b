#pragma once
// text/template/values/ holds Python's data as a template sees it (here), the arguments of calls, and data as JSON.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/values/meter.h"

namespace strata::text::jinja {

class Value;
class Object;
struct Arguments;

enum class Kind { undefined, none, boolean, integer, real, text, list, tuple, view, dict, object, method };

// Python's types as a template sees them. Values are immutable, as in the sandbox that transformers uses, so copies
// share their contents. A list or dict that is nested deeper than kMaxNesting throws Fault.
class Value {
 public:
  static constexpr int kMaxNesting = 128;

  struct Text {
    std::string bytes;
    bool safe;  // marked by `safe`: `+` escapes the other operand
  };
  struct Sequence {
    std::vector<Value> items;
    int nesting;
    bool hashable;          // a tuple of hashable values
    std::string_view name;  // the name of a view's type: dict_items and so on
  };
  struct Dict {
    std::vector<std::pair<Value, Value>> items;
    std::unordered_map<std::string_view, std::size_t> places;  // an index of text keys, if there are many
    int nesting;
  };
  // A bound method `self.name` that has not been called yet.
  struct Method {
    std::shared_ptr<const Value> self;
    std::string name;
  };

  Value() : held_(None()) {}
  Value(bool value) : held_(value) {}
  Value(std::int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(std::string text, bool safe = false)
      : held_(std::make_shared<const Text>(Text{.bytes = std::move(text), .safe = safe})) {}
  Value(const char*) = delete;  // a pointer would become a boolean
  // `why`: the error message for using it.
  static Value undefined(std::string why);
  static Value list(std::vector<Value> items) { return Value(Kind::list, std::move(items), ""); }
  static Value tuple(std::vector<Value> items) { return Value(Kind::tuple, std::move(items), ""); }
  // A dict's items, keys or values. `name` is Python's name of the type (a literal). A view has a length, but its
  // elements cannot be accessed by number.
  static Value view(std::string_view name, std::vector<Value> items) {
    return Value(Kind::view, std::move(items), name);
  }
  // Of equal keys, the last value counts, at the place of the first. Throws Fault for a key that Python cannot hash.
  static Value dict(std::vector<std::pair<Value, Value>> items, Meter& meter);
  // The same for keys that are all texts.
  static Value dict(std::vector<std::pair<Value, Value>> items);
  // `object` must outlive the value: the interpreter owns it.
  static Value object(Object& object);
  static Value method(Value self, std::string name);

  Kind kind() const { return static_cast<Kind>(held_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::real); }
  bool is_sequence() const { return is(Kind::list) || is(Kind::tuple) || is(Kind::view); }

  // Each getter is valid only for its own kind.
  const std::string& why() const;
  bool boolean() const { return std::get<bool>(held_); }
  // The value of a boolean or an integer.
  std::int64_t integer() const;
  // The value of any number.
  double real() const;
  const std::string& text() const;
  bool safe() const;
  const std::vector<Value>& items() const;  // the items of a list, a tuple or a view
  const std::vector<std::pair<Value, Value>>& pairs() const;
  Object& object() const;
  const Method& method() const;

  // A dict's value, or null.
  const Value* find(std::string_view key) const;
  const Value* find_value(const Value& key, Meter& meter) const;

  bool truthy() const;
  bool equals(const Value& other, Meter& meter) const;
  // Python's name for the type, for messages.
  std::string_view type_name() const;
  // Python's str() and repr(). Throws Fault for values whose text would differ between two runs, such as a macro.
  std::string to_text(Meter& meter) const;
  std::string to_text() const;  // for a value that was read from a file, which shares no parts
  std::string to_repr(Meter& meter) const;

 private:
  struct None {};
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  template <Kind>
  struct SequenceOf {
    std::shared_ptr<const Sequence> sequence;
  };

  Value(Kind kind, std::vector<Value> items, std::string_view name);
  const Sequence& sequence() const;
  int nesting() const;
  bool is_hashable() const;
  void append_repr(std::string& out, Meter& meter) const;

  // The alternatives are in the order of Kind.
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, SequenceOf<Kind::list>,
               SequenceOf<Kind::tuple>, SequenceOf<Kind::view>, std::shared_ptr<const Dict>, Object*,
               std::shared_ptr<const Method>>
      held_;
};

// An object that a template calls or reads attributes from, and that is not plain data: a namespace, macro, loop or
// iterator.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual Value attribute(const std::string& name);
  virtual Value call(Arguments& arguments);
};

// Can be iterated over only once, such as the result of `map` or `selectattr`. It is true even when it is empty.
class Iterator : public Object {
 public:
  explicit Iterator(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "generator"; }
  const Value* next() { return next_ < items_.size() ? &items_[next_++] : nullptr; }

 private:
  std::vector<Value> items_;
  std::size_t next_ = 0;
};

// The result of `namespace(...)`: the only object that a template can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Value attribute(const std::string& name) override;
  // Throws Fault for a name that begins with an underscore, as in transformers.
  void set(const std::string& name, Value value);

 private:
  std::unordered_map<std::string, Value> attributes_;
};

// The value as an integer. Throws a Fault that names `what` for anything else.
std::int64_t integer_of(const Value& value, std::string_view what);
// The content of a text. Throws a Fault for anything else.
const std::string& text_of(const Value& value, std::string_view what);
// Python's < for numbers, texts, lists and tuples. Throws a Fault for other types.
bool less(const Value& a, const Value& b, Meter& meter);

}  // namespace strata::text::jinja
