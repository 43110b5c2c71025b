#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

using Known = Named<Filter>;

Value texts(Runtime& runtime, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(runtime.text(std::string(part)));
  return runtime.list(std::move(out));
}

// Charges for the parts into which a character may split a text, before the list is made. Short texts are not worth it.
void take_parts(Runtime& runtime, std::string_view text, std::optional<char> at = std::nullopt) {
  constexpr std::size_t kShort = 1 << 20;
  constexpr std::uint64_t kPart = sizeof(std::string_view) + sizeof(Value) + sizeof(Value::Text);
  if (text.size() <= kShort) return;
  runtime.take(at ? static_cast<std::uint64_t>(std::count(text.begin(), text.end(), *at)) : text.size() / 2, kPart);
}

template <Side kSide>
Value stripped(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  const Value* characters = given.find_some("chars");
  return runtime.text(
      std::string(characters ? strip(self.text(), kSide, text_of(*characters, "strip")) : strip(self.text(), kSide)),
      self.safe());
}

template <bool kFromRight>
Value parted(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  const Value* separator = given.find_some("sep");
  const std::int64_t most = given.integer("maxsplit", -1);
  runtime.read(self.text().size());
  if (!separator) {
    if (kFromRight) throw Fault("rsplit needs a separator");
    take_parts(runtime, self.text());
    return texts(runtime, words(self.text(), most));
  }
  if (text_of(*separator, "split").empty()) throw Fault("split: the separator is empty");
  if (most < 0) take_parts(runtime, self.text(), separator->text()[0]);
  return texts(runtime, split(self.text(), separator->text(), most, kFromRight));
}

template <bool kAtEnd>
Value begins(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given(kAtEnd ? "endswith" : "startswith", arguments, {"prefix"});
  const auto is = [&](const Value& part) {
    const std::string& bytes = text_of(part, "startswith and endswith");
    runtime.read(bytes.size());
    return kAtEnd ? self.text().ends_with(bytes) : self.text().starts_with(bytes);
  };
  const Value& wanted = given.at("prefix");
  return wanted.is(Kind::tuple) ? std::ranges::any_of(wanted.items(), is) : is(wanted);
}

Value method_replaced(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  const std::string &old = text_of(given.at("old"), "replace"), &by = text_of(given.at("new"), "replace");
  const std::string& text = self.text();
  if (by.size() > old.size()) runtime.take(text.size() / std::max<std::size_t>(old.size(), 1) + 1, by.size());
  return runtime.text(replace(text, old, by, given.integer("count", -1)), self.safe());
}

Value method_joined(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : runtime.items_of(given.at("iterable"))) {
    const std::string& part = text_of(item, "join");
    runtime.read(self.text().size() + part.size());
    runtime.grown_to(out.size() + self.text().size() + part.size());
    if (!std::exchange(first, false)) out += self.text();
    out += part;
  }
  return runtime.text(std::move(out));
}

template <std::string (*kChange)(std::string_view)>
Value method_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  return runtime.text(kChange(self.text()), self.safe());
}

Value method_formatted(Runtime& runtime, const Value& self, Arguments& arguments) {
  return runtime.text(format_braces(runtime, self.text(), arguments));
}

constexpr std::array kOfText = {
    Known{"capitalize", method_changed<capitalize>},
    Known{"endswith", begins<true>},
    Known{"format", method_formatted},
    Known{"join", method_joined},
    Known{"lower", method_changed<lower>},
    Known{"lstrip", stripped<Side::left>},
    Known{"replace", method_replaced},
    Known{"rsplit", parted<true>},
    Known{"rstrip", stripped<Side::right>},
    Known{"split", parted<false>},
    Known{"startswith", begins<false>},
    Known{"strip", stripped<Side::both>},
    Known{"title", method_changed<title>},
    Known{"upper", method_changed<upper>},
};

Value get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("get", arguments, {"key", "default"});
  if (const Value* value = self.find_value(given.at("key"), runtime)) return *value;
  const Value* otherwise = given.find("default");
  return otherwise ? *otherwise : Value();
}
Value dict_items(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters none("items", arguments, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.pairs()) out.push_back(runtime.tuple({key, value}));
  return Value::view("dict_items", std::move(out));
}
Value dict_keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters none("keys", arguments, {});
  return Value::view("dict_keys", runtime.items_of(self));
}
Value dict_values(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters none("values", arguments, {});
  runtime.take(self.pairs().size() * sizeof(Value));
  std::vector<Value> out;
  for (const auto& [key, value] : self.pairs()) out.push_back(value);
  return Value::view("dict_values", std::move(out));
}
constexpr std::array kOfDict = {Known{"get", get}, Known{"items", dict_items}, Known{"keys", dict_keys},
                                Known{"values", dict_values}};

}  // namespace

// Those that modify nothing; the sandbox has no others.
std::span<const Named<Filter>> methods_of(Kind kind) {
  if (kind == Kind::text) return kOfText;
  if (kind == Kind::dict) return kOfDict;
  return {};
}

}  // namespace strata::text::jinja
