#include "text/template/builtins.h"

#include <utility>

#include "base/quote.h"
#include "text/template/values/arguments.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // the limit of Jinja's sandbox

class Function : public Object {
 public:
  using Work = std::function<Value(Arguments&)>;
  explicit Function(Work work) : work_(std::move(work)) {}
  std::string_view type_name() const override { return "function"; }
  Value call(Arguments& arguments) override { return work_(arguments); }

 private:
  Work work_;
};

Value range(Runtime& runtime, Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.named.empty() || given.empty() || given.size() > 3) throw Fault("range takes one to three ints");
  const auto at = [&](std::size_t i) { return integer_of(given[i], "range"); };
  const std::int64_t begin = given.size() > 1 ? at(0) : 0, end = at(given.size() > 1 ? 1 : 0);
  const std::int64_t by = given.size() > 2 ? at(2) : 1;
  if (by == 0) throw Fault("range: the step is 0");
  std::vector<Value> out;
  for (std::int64_t i = begin; by > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(out.size()) == kMaxRange) throw Fault("a range has more than {} numbers", kMaxRange);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return runtime.tuple(std::move(out));
}

// Python's dict(), from a dict or pairs, and from named arguments.
std::vector<std::pair<Value, Value>> pairs_of(Runtime& runtime, Arguments& arguments) {
  std::vector<std::pair<Value, Value>> out;
  if (arguments.positional.size() > 1) throw Fault("dict and namespace take at most one positional argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (from.is(Kind::dict)) {
      out = from.pairs();
    } else {
      for (const Value& pair : runtime.items_of(from)) {
        const std::vector<Value> items = runtime.items_of(pair);
        if (items.size() != 2) throw Fault("dict and namespace need pairs");
        out.emplace_back(items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) out.emplace_back(Value(name), value);
  runtime.take(out.size() * 2 * sizeof(Value));
  return out;
}

Value make_namespace(Runtime& runtime, Arguments& arguments) {
  Namespace& out = runtime.keep(std::make_unique<Namespace>());
  for (auto& [name, value] : pairs_of(runtime, arguments)) out.set(text_of(name, "namespace"), std::move(value));
  return Value::object(out);
}

Value raise(Runtime& runtime, Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"});
  constexpr std::size_t kMost = 1000;  // in bytes; longer texts are useless
  throw Fault("the template refuses it: " + excerpt(given.at("message").to_text(runtime), kMost));
}

Value time_text(Runtime& runtime, const std::tm& now, Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"});
  const std::string& format = text_of(given.at("format"), "strftime_now");
  constexpr std::size_t kMost = 4096;
  if (format.size() > kMost / 16) throw Fault("strftime_now: the format is above 256 bytes");
  std::string out(kMost, '\0');
  // A format such as "%p" may produce an empty text, for which strftime returns 0 as it does for one that does not fit.
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &now));
  return runtime.text(is_valid_utf8(out) ? std::move(out) : std::string());
}

}  // namespace

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
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    const Value* next = peek();
    return next ? *next : Value::undefined("there is no next item");
  }
  return Object::attribute(name);
}

Object* make_global(Runtime& runtime, std::string_view name, const std::tm& now) {
  Function::Work work;
  if (name == "range") work = [&runtime](Arguments& given) { return range(runtime, given); };
  if (name == "dict") work = [&runtime](Arguments& given) { return Value::dict(pairs_of(runtime, given), runtime); };
  if (name == "namespace") work = [&runtime](Arguments& given) { return make_namespace(runtime, given); };
  if (name == "raise_exception") work = [&runtime](Arguments& given) { return raise(runtime, given); };
  if (name == "strftime_now") work = [&runtime, now](Arguments& given) { return time_text(runtime, now, given); };
  return work ? &runtime.keep(std::make_unique<Function>(std::move(work))) : nullptr;
}

}  // namespace strata::text::jinja
