#include "text/template/loop.h"

#include <fmt/format.h>

#include "text/template/values/arguments.h"

namespace strata::text::jinja {

class Loop::Function : public Object {
 public:
  using Member = std::function<Value(Arguments&)>;
  explicit Function(Member member) : member_(std::move(member)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Arguments& arguments) override { return member_(arguments); }

 private:
  Member member_;
};

const Value* Loop::peek() {
  while (!ahead_ && next_ < items_.size()) {
    Value item = items_[next_++];
    if (!test_ || test_(item)) ahead_ = std::move(item);
  }
  return ahead_ ? &*ahead_ : nullptr;
}

bool Loop::advance() {
  if (!peek()) return false;
  before_ = std::exchange(current_, std::exchange(ahead_, std::nullopt));
  ++index_;
  return true;
}

void Loop::finish() {
  items_ = {};
  next_ = 0;
  test_ = {};
  ahead_.reset();
}

std::int64_t Loop::length() {
  if (test_) {
    std::vector<Value> rest;
    while (const Value* next = peek()) {
      rest.push_back(*next);
      ahead_.reset();
    }
    items_ = std::move(rest);
    next_ = 0;
    test_ = {};
  }
  return index_ + 1 + (ahead_ ? 1 : 0) + static_cast<std::int64_t>(items_.size() - next_);
}

Value Loop::attribute(const std::string& name) {
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "first") return index_ == 0;
  if (name == "last") return peek() == nullptr;
  if (name == "length") return length();
  if (name == "revindex") return length() - index_;
  if (name == "revindex0") return length() - index_ - 1;
  if (name == "depth") return std::int64_t{1};
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    const Value* next = peek();
    return next ? *next : Value::undefined("there is no next item");
  }
  if (name != "cycle" && name != "changed") return Object::attribute(name);
  meter_.take(sizeof(Function));
  functions_.push_back(std::make_unique<Function>([this, is_cycle = name == "cycle"](Arguments& arguments) {
    return is_cycle ? cycle(arguments) : changed(arguments);
  }));
  return Value::object(*functions_.back());
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) throw Fault("loop.cycle needs values to cycle through");
  return arguments.positional[static_cast<std::size_t>(index_) % arguments.positional.size()];
}

Value Loop::changed(const Arguments& arguments) {
  Value now = Value::tuple(arguments.positional);
  const bool out = !seen_ || !seen_->equals(now, meter_);
  seen_ = std::move(now);
  return out;
}

}  // namespace strata::text::jinja
