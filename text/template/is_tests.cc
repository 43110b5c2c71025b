#include <fmt/format.h>

#include <array>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/operators.h"
#include "text/template/values/python_text.h"

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

bool is_defined(const Value& value) {
  return !value.is(Kind::undefined);
}
bool is_undefined(const Value& value) {
  return value.is(Kind::undefined);
}
bool is_none(const Value& value) {
  return value.is(Kind::none);
}
bool is_boolean(const Value& value) {
  return value.is(Kind::boolean);
}
bool is_true(const Value& value) {
  return value.is(Kind::boolean) && value.boolean();
}
bool is_false(const Value& value) {
  return value.is(Kind::boolean) && !value.boolean();
}
bool holds_integer(const Value& value) {
  return value.is(Kind::integer);
}
bool is_float(const Value& value) {
  return value.is(Kind::real);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is(Kind::text);
}
bool is_mapping(const Value& value) {
  return value.is(Kind::dict);
}
bool is_escaped(const Value& value) {
  return value.safe();
}
// Whether it has a length and elements by number or key, as Jinja tests it: an undefined value passes.
bool is_sequence(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::dict) ||
         value.is(Kind::undefined);
}
bool is_iterable(const Value& value) {
  if (value.is(Kind::object)) return dynamic_cast<const Iterator*>(&value.object()) != nullptr;
  return is_sequence(value) || value.is(Kind::view);
}
bool is_callable(const Value& value) {
  return value.is(Kind::method) || (value.is(Kind::object) && value.object().callable());
}
bool is_odd(const Value& value) {
  return integer_of(value, "odd") % 2 != 0;
}
bool is_even(const Value& value) {
  return integer_of(value, "even") % 2 == 0;
}
bool is_filter(const Value& value) {
  return value.is(Kind::text) && (text_filter(value.text()) || sequence_filter(value.text()));
}
bool is_test(const Value& value) {
  return value.is(Kind::text) && find_test(value.text());
}

bool is_same(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value& other = only(arguments);
  return value.kind() == other.kind() && value.equals(other, runtime);
}
template <bool (*kIs)(std::string_view)>
bool is_case(Runtime& runtime, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) throw Fault("this test takes no argument");
  return kIs(value.to_text(runtime));
}
bool is_divisible(Runtime& runtime, const Value& value, Arguments& arguments) {
  return binary(runtime, "%", value, only(arguments)).equals(Value(std::int64_t{0}), runtime);
}
bool is_in(Runtime& runtime, const Value& value, Arguments& arguments) {
  return contains(runtime, only(arguments), value);
}

constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<", kLessEqual[] = "<=", kGreater[] = ">",
               kGreaterEqual[] = ">=";

constexpr std::array<std::pair<std::string_view, Test>, 39> kTests = {{
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", compared<kEqual>},
    {"equalto", compared<kEqual>},
    {"==", compared<kEqual>},
    {"escaped", plain<is_escaped>},
    {"even", plain<is_even>},
    {"false", plain<is_false>},
    {"filter", plain<is_filter>},
    {"float", plain<is_float>},
    {"ge", compared<kGreaterEqual>},
    {">=", compared<kGreaterEqual>},
    {"gt", compared<kGreater>},
    {"greaterthan", compared<kGreater>},
    {">", compared<kGreater>},
    {"in", is_in},
    {"integer", plain<holds_integer>},
    {"iterable", plain<is_iterable>},
    {"le", compared<kLessEqual>},
    {"<=", compared<kLessEqual>},
    {"lower", is_case<is_lower>},
    {"lt", compared<kLess>},
    {"lessthan", compared<kLess>},
    {"<", compared<kLess>},
    {"mapping", plain<is_mapping>},
    {"ne", compared<kUnequal>},
    {"!=", compared<kUnequal>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", plain<is_odd>},
    {"sameas", is_same},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", plain<is_test>},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", is_case<is_upper>},
}};

}  // namespace

Test find_test(std::string_view name) {
  for (const auto& [known, test] : kTests)
    if (known == name) return test;
  return nullptr;
}

}  // namespace strata::text::jinja
