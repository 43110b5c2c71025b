#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/json_text.h"
#include "text/template/values/python_text.h"

// Filters on texts and numbers: one value in, one value out.
namespace strata::text::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value changed(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("a filter of text", arguments, {});
  return runtime.text(kChange(value.to_text(runtime)), value.safe());
}

Value trim(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("trim", arguments, {"chars"});
  const Value* characters = given.find_some("chars");
  const std::string text = value.to_text(runtime);
  return runtime.text(
      std::string(characters ? strip(text, Side::both, text_of(*characters, "trim")) : strip(text, Side::both)),
      value.safe());
}

Value to_string(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("string", arguments, {});
  return value.is(Kind::text) ? value : runtime.text(value.to_text(runtime));
}

Value safe(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("safe", arguments, {});
  return runtime.text(value.to_text(runtime), true);
}
Value escaped(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  return value.safe() ? value : runtime.text(escape(value.to_text(runtime)), true);
}

Value replaced(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  const Value* count = given.find_some("count");
  const std::int64_t most = count ? integer_of(*count, "replace") : -1;
  const std::string text = value.to_text(runtime), old = given.at("old").to_text(runtime),
                    by = given.at("new").to_text(runtime);
  if (by.size() > old.size()) runtime.take(text.size() / std::max<std::size_t>(old.size(), 1) + 1, by.size());
  return runtime.text(replace(text, old, by, most), value.safe());
}

Value indented(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  const Value* width = given.find("width");
  const std::int64_t spaces = width && width->is(Kind::text) ? 0 : given.integer("width", 4);
  if (spaces > 1 << 16) throw Fault("indent: the width is above 65536");
  const std::string by = width && width->is(Kind::text)
                             ? width->text()
                             : std::string(static_cast<std::size_t>(std::max<std::int64_t>(spaces, 0)), ' ');
  const std::string text = value.to_text(runtime) + "\n";
  const bool blank = given.flag("blank", false);
  std::string out = given.flag("first", false) ? by : "";
  bool first = true;
  for (const std::string_view line : lines(text, false)) {
    runtime.take(by.size());
    if (!std::exchange(first, false)) out += '\n' + (line.empty() && !blank ? "" : by);
    out += line;
  }
  return runtime.text(std::move(out), value.safe());
}

Value formatted(Runtime& runtime, const Value& value, Arguments& arguments) {
  if (!arguments.named.empty()) throw Fault("format takes no named arguments: %(name)s is not supported");
  return runtime.text(format_percent(runtime, value.to_text(runtime), Value::tuple(arguments.positional)));
}

Value to_json(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = given.flag("ensure_ascii", false), .sort_keys = given.flag("sort_keys", false)};
  if (const Value* indent = given.find_some("indent")) {
    if (indent->is(Kind::text)) {
      style.indent = indent->text();
    } else {
      const std::int64_t width = integer_of(*indent, "tojson");
      if (width > 1 << 10) throw Fault("tojson: the indent is above 1024");
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.between_items = ",";
  }
  if (const Value* separators = given.find_some("separators")) {
    if (!separators->is_sequence() || separators->items().size() != 2)
      throw Fault("tojson: separators must be two texts");
    style.between_items = text_of(separators->items()[0], "tojson");
    style.after_key = text_of(separators->items()[1], "tojson");
  }
  return runtime.text(json_text(value, style, runtime));
}

Value absolute(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  if (value.is(Kind::real)) return std::fabs(value.real());
  const std::int64_t number = integer_of(value, "abs");
  if (number == std::numeric_limits<std::int64_t>::min()) throw Fault("abs: the integer is too large");
  return number < 0 ? -number : number;
}

Value rounded(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters given("round", arguments, {"precision", "method"});
  const std::int64_t precision = given.integer("precision", 0);
  const std::string method = given.text("method", "common");
  if (!value.is_number()) throw Fault("round needs a number, not a {}", value.type_name());
  if (precision < 0 || precision > 300) throw Fault("round: the precision must be from 0 to 300");
  if (method == "common") {
    // Rounds the exact value, as Python does, because the decimal text of a double is exact.
    double out = 0;
    const std::string text = fmt::format("{:.{}f}", value.real(), precision);
    std::from_chars(text.data(), text.data() + text.size(), out);
    return value.is(Kind::real) ? Value(out) : value;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value.real() * scale) / scale;
  if (method == "floor") return std::floor(value.real() * scale) / scale;
  throw Fault("round: the method must be common, ceil or floor");
}

// Parses a text, ignoring surrounding white space.
template <typename T>
bool parsed(std::string_view text, T& out) {
  text = strip(text, Side::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && rest == text.data() + text.size();
}

Value to_integer(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters given("int", arguments, {"default", "base"});
  if (given.integer("base", 10) != 10) throw Fault("int: only base 10 is supported");
  const Value* otherwise = given.find("default");
  double real = value.is(Kind::real) ? value.real() : 0;
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.integer();
  if (value.is(Kind::text)) {
    std::int64_t out = 0;
    if (parsed(value.text(), out)) return out;
  }
  if (value.is(Kind::real) || (value.is(Kind::text) && parsed(value.text(), real))) {
    if (!(real > -9.2e18 && real < 9.2e18)) throw Fault("int: {} is beyond 64 bits", real);
    return static_cast<std::int64_t>(real);
  }
  return otherwise ? *otherwise : Value(std::int64_t{0});
}

Value to_real(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters given("float", arguments, {"default"});
  const Value* otherwise = given.find("default");
  double out = 0;
  if (value.is_number()) return value.real();
  if (value.is(Kind::text) && parsed(value.text(), out)) return out;
  return otherwise ? *otherwise : Value(0.0);
}

constexpr std::pair<std::string_view, Filter> kTextFilters[] = {
    {"abs", absolute},
    {"capitalize", changed<capitalize>},
    {"e", escaped},
    {"escape", escaped},
    {"float", to_real},
    {"format", formatted},
    {"indent", indented},
    {"int", to_integer},
    {"lower", changed<lower>},
    {"replace", replaced},
    {"round", rounded},
    {"safe", safe},
    {"string", to_string},
    {"title", changed<title_words>},
    {"tojson", to_json},
    {"trim", trim},
    {"upper", changed<upper>},
};

}  // namespace

Filter text_filter(std::string_view name) {
  for (const auto& [known, filter] : kTextFilters)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace strata::text::jinja
