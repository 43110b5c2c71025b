#include "text/template/runtime.h"
#include "text/template/values/arguments.h"

// The tests that can follow `is`.
namespace strata::text::jinja {
namespace {

const Value& only(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) throw Fault("this test needs one argument");
  return arguments.positional.front();
}

template <bool (*kHolds)(const Value&)>
bool plain(Runtime&, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) throw Fault("this test takes no argument");
  return kHolds(value);
}
template <const char* kSign>
bool compared(Runtime& runtime, const Value& value, Arguments& arguments) {
  return compare(runtime, kSign, value, only(arguments));
}

template <Kind kKind>
bool is_of(const Value& value) {
  return value.is(kKind);
}
bool is_defined(const Value& value) {
  return !value.is(Kind::undefined);
}
bool is_true(const Value& value) {
  return value.is(Kind::boolean) && value.boolean();
}
bool is_false(const Value& value) {
  return value.is(Kind::boolean) && !value.boolean();
}
bool is_number(const Value& value) {
  return value.is_number();
}
// Whether the value has a length and elements by number or key, as Jinja tests it. An undefined value passes.
bool is_sequence(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::dict) ||
         value.is(Kind::undefined);
}
bool is_iterable(const Value& value) {
  if (value.is(Kind::object)) return dynamic_cast<const Iterator*>(&value.object()) != nullptr;
  return is_sequence(value) || value.is(Kind::view);
}

bool is_same(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value& other = only(arguments);
  return value.kind() == other.kind() && value.equals(other, runtime);
}
bool is_in(Runtime& runtime, const Value& value, Arguments& arguments) {
  return contains(runtime, only(arguments), value);
}

constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<", kLessEqual[] = "<=", kGreater[] = ">",
               kGreaterEqual[] = ">=";

constexpr Named<Test> kTests[] = {
    {"boolean", plain<is_of<Kind::boolean>>},
    {"defined", plain<is_defined>},
    {"eq", compared<kEqual>},
    {"equalto", compared<kEqual>},
    {"==", compared<kEqual>},
    {"false", plain<is_false>},
    {"float", plain<is_of<Kind::real>>},
    {"ge", compared<kGreaterEqual>},
    {">=", compared<kGreaterEqual>},
    {"gt", compared<kGreater>},
    {"greaterthan", compared<kGreater>},
    {">", compared<kGreater>},
    {"in", is_in},
    {"integer", plain<is_of<Kind::integer>>},
    {"iterable", plain<is_iterable>},
    {"le", compared<kLessEqual>},
    {"<=", compared<kLessEqual>},
    {"lt", compared<kLess>},
    {"lessthan", compared<kLess>},
    {"<", compared<kLess>},
    {"mapping", plain<is_of<Kind::dict>>},
    {"ne", compared<kUnequal>},
    {"!=", compared<kUnequal>},
    {"none", plain<is_of<Kind::none>>},
    {"number", plain<is_number>},
    {"sameas", is_same},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_of<Kind::text>>},
    {"true", plain<is_true>},
    {"undefined", plain<is_of<Kind::undefined>>},
};

}  // namespace

std::span<const Named<Test>> is_tests() {
  return kTests;
}

}  // namespace strata::text::jinja
