#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

// How a value is formatted. `align`: '<', '>', '^', or '=' for padding between the sign and the digits.
struct Spec {
  std::string fill = " ";
  char align = 0, type = 0;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
};

constexpr std::size_t kMaxWidth = 1 << 20, kMaxPrecision = 1000;

bool is_digit_at(std::string_view text, std::size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}
std::size_t number_at(std::string_view text, std::size_t& at, std::size_t most) {
  std::size_t out = 0;
  for (; is_digit_at(text, at); ++at) {
    out = 10 * out + static_cast<std::size_t>(text[at] - '0');
    if (out > most) throw Fault("a width or precision of a format is above {}", most);
  }
  return out;
}
// Reads [width][.precision][type].
void read_end(std::string_view text, std::size_t& at, Spec& out) {
  out.width = number_at(text, at, kMaxWidth);
  if (at < text.size() && text[at] == '.' && is_digit_at(text, at + 1))
    out.precision = number_at(text, ++at, kMaxPrecision);
  if (at < text.size()) out.type = text[at++];
}

std::string padded(std::string text, const Spec& spec, char usual_align) {
  const std::size_t length = length_of(text);
  if (spec.width <= length) return text;
  const std::size_t missing = spec.width - length;
  const char align = spec.align != 0 ? spec.align : usual_align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (std::size_t i = 0; i < missing; ++i) (i < left ? before : after) += spec.fill;
  return text.insert(align == '=' && text.starts_with('-') ? 1 : 0, before) + after;
}

std::string number_text(const Value& value, const Spec& spec) {
  if (spec.type == 'f') return fmt::format("{:.{}f}", value.real(), spec.precision.value_or(6));
  if (spec.precision) throw Fault("only the format 'f' takes a precision for a number");
  if (spec.type == 0 && value.is(Kind::real)) return repr_of(value.real());
  if (spec.type == 's') throw Fault("there is no format 's' for a number");
  if (value.is(Kind::real)) throw Fault("the format '{}' is for an int, not a float", spec.type);
  return spec.type == 'x' ? fmt::format("{:x}", value.integer()) : fmt::format("{}", value.integer());
}

std::string formatted(Runtime& runtime, const Value& value, const Spec& spec) {
  if (value.is_number() && !(value.is(Kind::boolean) && spec.type == 0))
    return padded(number_text(value, spec), spec, '>');
  if (spec.type != 0 && spec.type != 's') throw Fault("the format '{}' is for a number", spec.type);
  if (spec.align == '=') throw Fault("a 0 before the width, or =, is for a number");
  std::string text = value.to_text(runtime);
  if (spec.precision) text.resize(byte_of(text, *spec.precision));
  return padded(std::move(text), spec, '<');
}

// Reads a format after its %, and moves `at` past it.
Spec percent_spec(std::string_view pattern, std::size_t& at) {
  Spec out{.align = '>'};
  const std::size_t begin = at;
  for (; at < pattern.size() && (pattern[at] == '-' || pattern[at] == '0'); ++at) {
    if (pattern[at] == '-')
      out = {.align = '<'};
    else if (out.align != '<')
      out = {.fill = "0", .align = '='};
  }
  read_end(pattern, at, out);
  if (out.type == 0) throw Fault("a format after % is incomplete");
  if (std::string_view("sdfx%").find(out.type) == std::string_view::npos)
    throw Fault("the format %{} is not supported: only %s, %d, %f, %x and %%, with -, 0, a width and a precision",
                pattern.substr(begin, at - 1 - begin + character_length(out.type)));
  return out;
}

std::string percent_text(Runtime& runtime, const Value& value, Spec spec) {
  if (spec.type == 's') {
    if (spec.align == '=') spec = {.align = '>', .width = spec.width, .precision = spec.precision};
    const Value text(value.to_text(runtime));
    runtime.take(text.text().size());
    return formatted(runtime, text, spec);
  }
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (!value.is_number()) throw Fault("%{} needs a number, not a {}", spec.type, value.type_name());
  if (spec.type != 'd' || !value.is(Kind::real)) return formatted(runtime, value, spec);
  if (!(value.real() > -9.2e18 && value.real() < 9.2e18)) throw Fault("%d: too large");
  return formatted(runtime, Value(static_cast<std::int64_t>(value.real())), spec);
}

// [[fill]align][0][width][.precision][type]
Spec field_spec(std::string_view text) {
  Spec out;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t place) {
    return place < text.size() && std::string_view("<>^=").find(text[place]) != std::string_view::npos;
  };
  const std::size_t first = text.empty() ? 0 : character_length(text[0]);
  const bool filled = first > 0 && is_align(first);
  if (filled) out.fill = std::string(text.substr(0, at = first));
  if (is_align(at)) out.align = text[at++];
  if (at < text.size() && text[at] == '0') {
    if (!filled) out.fill = "0";
    if (out.align == 0) out.align = '=';
  }
  read_end(text, at, out);
  if (at != text.size() || std::string_view("sdfx", 5).find(out.type) == std::string_view::npos)
    throw Fault(
        "the format '{}' of a field is not supported: only an alignment, 0, a width, a precision, and s, d, f or x",
        text);
  return out;
}

// The value of {}, {0} or {name}. `next`: the number of {} so far.
const Value& field_value(std::string_view name, const Arguments& arguments, std::size_t& next) {
  std::size_t at = 0;
  const std::size_t number = name.empty() ? next++ : number_at(name, at, kMaxWidth);
  if (at == name.size()) {
    if (number >= arguments.positional.size()) throw Fault("format has no argument {}", number);
    return arguments.positional[number];
  }
  for (const auto& [known, value] : arguments.named)
    if (known == name) return value;
  if (name.find_first_of(".[!") != std::string_view::npos)
    throw Fault("the field {{{}}} of a format is not supported: only {{}}, {{0}} and {{name}}", name);
  throw Fault("format has no argument '{}'", name);
}

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value) {
  const std::span<const Value> values = value.is(Kind::tuple) ? std::span(value.items()) : std::span(&value, 1);
  std::size_t used = 0;
  std::string out;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '%') {
      out += pattern[at++];
      continue;
    }
    const Spec spec = percent_spec(pattern, ++at);
    if (spec.type != '%' && used == values.size()) throw Fault("%: there are fewer values than places in the text");
    const std::string field = spec.type == '%' ? "%" : percent_text(runtime, values[used++], spec);
    runtime.take(field.size());
    out += field;
  }
  if (used < values.size() && !value.is(Kind::dict)) throw Fault("%: not all values have a place in the text");
  return out;
}

std::string format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    const bool twice = at + 1 < pattern.size() && pattern[at + 1] == c;
    if ((c == '{' || c == '}') && twice) {
      out += c;
      ++at;
    } else if (c == '}') {
      throw Fault("a format has a single }");
    } else if (c == '{') {
      const std::size_t end = pattern.find('}', at);
      if (end == std::string_view::npos) throw Fault("a { of a format is not closed");
      const std::string_view inside = pattern.substr(at + 1, end - at - 1), name = inside.substr(0, inside.find(':'));
      const Value& value = field_value(name, arguments, next);
      const std::string field =
          formatted(runtime, value, field_spec(inside.substr(std::min(name.size() + 1, inside.size()))));
      runtime.take(field.size());
      out += field;
      at = end;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace strata::text::jinja
