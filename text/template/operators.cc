#include <cmath>
#include <limits>

#include "text/template/runtime.h"
#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

[[noreturn]] void no_operator(const std::string& sign, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) throw Fault(a.why());
  if (b.is(Kind::undefined)) throw Fault(b.why());
  throw Fault("'{2}' does not work on a {0} and a {1}", a.type_name(), b.type_name(), sign);
}
[[noreturn]] void too_large() {
  throw Fault("an integer is outside of the range from -2^63 to 2^63 - 1");
}

// Python's division: the quotient is rounded down, and the remainder has the divisor's sign.
std::int64_t divided(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    if (a == std::numeric_limits<std::int64_t>::min()) too_large();
    return -a;
  }
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}
double remainder_of(double a, double b) {
  const double out = std::fmod(a, b);
  if (out == 0) return std::copysign(0.0, b);
  return (out < 0) != (b < 0) ? out + b : out;
}

Value of_integers(const std::string& sign, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (sign == "+") {
    if (__builtin_add_overflow(a, b, &out)) too_large();
    return out;
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(a, b, &out)) too_large();
    return out;
  }
  if (sign == "*") {
    if (__builtin_mul_overflow(a, b, &out)) too_large();
    return out;
  }
  if (b == 0) throw Fault("a division by 0");
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "//") return divided(a, b);
  if (b == -1) return std::int64_t{0};
  return a - divided(a, b) * b;
}

Value of_reals(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (b == 0) throw Fault("a division by 0");
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : remainder_of(a, b);
}

Value repeated(Runtime& runtime, const Value& value, std::int64_t times) {
  const std::uint64_t size = value.is(Kind::text) ? value.text().size() : value.items().size() * sizeof(Value);
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  runtime.take(n, size);
  if (value.is(Kind::text)) {
    std::string out;
    out.reserve(n * size);
    for (std::uint64_t i = 0; i < n && size > 0; ++i) out += value.text();
    return {std::move(out), value.safe()};
  }
  std::vector<Value> out;
  for (std::uint64_t i = 0; i < n && size > 0; ++i) out.insert(out.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

Value added(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::text)) {
    const bool safe = a.safe() || b.safe();
    const auto part = [&](const Value& value) { return safe && !value.safe() ? escape(value.text()) : value.text(); };
    return runtime.text(part(a) + part(b), safe);
  }
  std::vector<Value> out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? runtime.list(std::move(out)) : runtime.tuple(std::move(out));
}

bool is_integer(const Value& value) {
  return value.is(Kind::integer) || value.is(Kind::boolean);
}
bool repeats(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}

}  // namespace

Value binary(Runtime& runtime, const std::string& sign, const Value& a, const Value& b) {
  if (is_integer(a) && is_integer(b)) return of_integers(sign, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return of_reals(sign, a.real(), b.real());
  if (sign == "+" && a.kind() == b.kind() && repeats(a)) return added(runtime, a, b);
  if (sign == "*" && repeats(a) && is_integer(b)) return repeated(runtime, a, b.integer());
  if (sign == "*" && is_integer(a) && repeats(b)) return repeated(runtime, b, a.integer());
  if (sign == "%" && a.is(Kind::text)) return runtime.text(format_percent(runtime, a.text(), b), a.safe());
  no_operator(sign, a, b);
}

bool compare(Runtime& runtime, const std::string& sign, const Value& a, const Value& b) {
  if (sign == "==") return a.equals(b, runtime);
  if (sign == "!=") return !a.equals(b, runtime);
  if (sign == "in") return contains(runtime, b, a);
  if (sign == "not in") return !contains(runtime, b, a);
  const bool numbers = a.is_number() && b.is_number();
  if (numbers && (std::isnan(a.real()) || std::isnan(b.real()))) return false;
  if (sign == "<") return less(a, b, runtime);
  if (sign == ">") return less(b, a, runtime);
  return sign == "<=" ? !less(b, a, runtime) : !less(a, b, runtime);
}

Value negative(const Value& value) {
  if (value.is(Kind::real)) return -value.real();
  const std::int64_t number = integer_of(value, "-");
  if (number == std::numeric_limits<std::int64_t>::min()) too_large();
  return -number;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::text:
      if (!item.is(Kind::text)) no_operator("in", item, container);
      runtime.read(container.text().size());
      return container.text().find(item.text()) != std::string::npos;
    case Kind::dict:
      return container.find_value(item, runtime) != nullptr;
    case Kind::list:
    case Kind::tuple:
    case Kind::view: {
      runtime.step(container.items().size());
      for (const Value& known : container.items())
        if (known.equals(item, runtime)) return true;
      return false;
    }
    case Kind::object:
      if (auto* iterator = dynamic_cast<Iterator*>(&container.object())) {
        while (const Value* next = iterator->next())
          if (next->equals(item, runtime)) return true;
        return false;
      }
      [[fallthrough]];
    case Kind::undefined:
      if (container.is(Kind::undefined)) return false;
      [[fallthrough]];
    default:
      throw Fault("'in' does not work on a {}", container.type_name());
  }
}

}  // namespace strata::text::jinja
