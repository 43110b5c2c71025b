#include <utility>

#include "base/number.h"
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
  for (const std::string_view line : lines(text)) {
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

Value to_integer(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters given("int", arguments, {"default"});
  const Value* otherwise = given.find("default");
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.integer();
  std::optional<double> real;
  if (value.is(Kind::real)) real = value.real();
  if (value.is(Kind::text)) {
    std::string_view text = strip(value.text(), Side::both);
    if (text.starts_with('+')) text.remove_prefix(1);
    if (const auto whole = parse_number<std::int64_t>(text)) return *whole;
    real = parse_number<double>(text);
  }
  if (!real) return otherwise ? *otherwise : Value(std::int64_t{0});
  if (!(*real > -9.2e18 && *real < 9.2e18)) throw Fault("int: {} is beyond 64 bits", *real);
  return static_cast<std::int64_t>(*real);
}

constexpr Named<Filter> kTextFilters[] = {
    {"capitalize", changed<capitalize>},
    {"format", formatted},
    {"indent", indented},
    {"int", to_integer},
    {"lower", changed<lower>},
    {"replace", replaced},
    {"safe", safe},
    {"string", to_string},
    {"tojson", to_json},
    {"trim", trim},
    {"upper", changed<upper>},
};

}  // namespace

std::span<const Named<Filter>> text_filters() {
  return kTextFilters;
}

}  // namespace strata::text::jinja
