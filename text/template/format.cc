#include <fmt/format.h>

#include <optional>
#include <span>

#include "base/number.h"
#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

std::string whole_text(const Value& value) {
  return fmt::format("{}", integer_of(value, "the format d"));
}

// The value of {}, {0} or {name}. `next`: the number of {} so far.
const Value& field_value(std::string_view name, const Arguments& arguments, std::size_t& next) {
  const auto number = name.empty() ? std::optional(next++) : parse_number<std::size_t>(name);
  if (number && *number < arguments.positional.size()) return arguments.positional[*number];
  for (const auto& [known, value] : arguments.named)
    if (known == name) return value;
  throw Fault("format has no argument for the field {{{}}}: a field is {{}}, {{0}} or {{name}}, also with :d or :s",
              name);
}

std::string field_text(Runtime& runtime, std::string_view field, const Arguments& arguments, std::size_t& next) {
  const std::string_view name = field.substr(0, field.find(':'));
  const std::string_view format = field.substr(std::min(name.size() + 1, field.size()));
  const Value& value = field_value(name, arguments, next);
  if (format.empty()) return value.to_text(runtime);
  if (format == "d") return whole_text(value);
  if (format == "s") return text_of(value, "the format s");
  throw Fault("the format '{}' of a field is not supported: only d and s", format);
}

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value) {
  const std::span<const Value> values = value.is(Kind::tuple) ? std::span(value.items()) : std::span(&value, 1);
  std::size_t used = 0;
  std::string out;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] != '%') {
      out += pattern[at];
      continue;
    }
    ++at;
    const std::string_view type = pattern.substr(at, at < pattern.size() ? character_length(pattern[at]) : 0);
    if (type != "s" && type != "d" && type != "%")
      throw Fault("the format %{} is not supported: only %s, %d and %%", type);
    if (type != "%" && used == values.size()) throw Fault("%: there are fewer values than places in the text");
    const std::string field = type == "%"   ? "%"
                              : type == "s" ? values[used].to_text(runtime)
                                            : whole_text(values[used]);
    used += type == "%" ? 0 : 1;
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
    if ((c != '{' && c != '}') || twice) {
      out += c;
      at += twice && (c == '{' || c == '}') ? 1 : 0;
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    if (c == '}' || end == std::string_view::npos) throw Fault("a format has a single {}", c);
    const std::string field = field_text(runtime, pattern.substr(at + 1, end - at - 1), arguments, next);
    runtime.take(field.size());
    out += field;
    at = end;
  }
  return out;
}

}  // namespace strata::text::jinja
