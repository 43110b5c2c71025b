#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

using Method = Value (*)(Runtime&, const Value&, Arguments&);
struct Known {
  std::string_view name;
  Method method;
};

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
    take_parts(runtime, self.text());
    return texts(runtime, words(self.text(), most, kFromRight));
  }
  if (text_of(*separator, "split").empty()) throw Fault("split: the separator is empty");
  if (most < 0) take_parts(runtime, self.text(), separator->text()[0]);
  return texts(runtime, split(self.text(), separator->text(), most, kFromRight));
}

Value split_lines(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  take_parts(runtime, self.text());
  return texts(runtime, lines(self.text(), given.flag("keepends", false)));
}

// The bytes of text[start:end], for the search methods.
std::string_view part_of(Runtime& runtime, const Value& self, const Parameters& given) {
  runtime.read(self.text().size());
  const auto length = static_cast<std::int64_t>(length_of(self.text()));
  const auto place = [&](std::string_view name, std::int64_t otherwise) {
    const Value* found = given.find_some(name);
    const std::int64_t at = found ? integer_of(*found, name) : otherwise;
    return std::clamp<std::int64_t>(at < 0 ? at + length : at, 0, length);
  };
  const std::int64_t begin = place("start", 0), end = std::max(begin, place("end", length));
  const std::size_t first = byte_of(self.text(), static_cast<std::size_t>(begin));
  const std::size_t last = byte_of(self.text(), static_cast<std::size_t>(end));
  return std::string_view(self.text()).substr(first, last - first);
}

template <bool kAtEnd>
Value begins(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given(kAtEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const std::string_view text = part_of(runtime, self, given);
  const auto is = [&](const Value& part) {
    const std::string& bytes = text_of(part, "startswith and endswith");
    return kAtEnd ? text.ends_with(bytes) : text.starts_with(bytes);
  };
  const Value& wanted = given.at("prefix");
  if (!wanted.is(Kind::tuple)) return is(wanted);
  return std::any_of(wanted.items().begin(), wanted.items().end(), is);
}

Value found(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("find", arguments, {"sub", "start", "end"});
  const std::string_view text = part_of(runtime, self, given);
  const std::size_t at = text.find(text_of(given.at("sub"), "find"));
  if (at == std::string_view::npos) return std::int64_t{-1};
  const auto before = static_cast<std::size_t>(text.data() + at - self.text().data());
  return static_cast<std::int64_t>(length_of(std::string_view(self.text()).substr(0, before)));
}

Value counted(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("count", arguments, {"sub", "start", "end"});
  const std::string_view text = part_of(runtime, self, given);
  const std::string& wanted = text_of(given.at("sub"), "count");
  if (wanted.empty()) return static_cast<std::int64_t>(length_of(text) + 1);
  take_parts(runtime, text, wanted[0]);
  return static_cast<std::int64_t>(split(text, wanted, -1, false).size() - 1);
}

Value method_replaced(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  const std::string &old = text_of(given.at("old"), "replace"), &by = text_of(given.at("new"), "replace");
  const std::string& text = self.text();
  if (by.size() > old.size()) runtime.take(text.size() / std::max<std::size_t>(old.size(), 1) + 1, by.size());
  return runtime.text(replace(text, old, by, given.integer("count", -1)), self.safe());
}

template <bool kAtEnd>
Value without(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given(kAtEnd ? "removesuffix" : "removeprefix", arguments, {"prefix"});
  const std::string& part = text_of(given.at("prefix"), "removeprefix and removesuffix");
  std::string_view text = self.text();
  if (kAtEnd && text.ends_with(part)) text.remove_suffix(part.size());
  if (!kAtEnd && text.starts_with(part)) text.remove_prefix(part.size());
  return runtime.text(std::string(text), self.safe());
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
template <bool (*kIs)(std::string_view)>
Value is(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  runtime.read(self.text().size());
  return kIs(self.text());
}
bool all_space(std::string_view text) {
  return !text.empty() && strip(text, Side::both).empty();
}
bool all_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return c < 0; });
}

Value method_formatted(Runtime& runtime, const Value& self, Arguments& arguments) {
  return runtime.text(format_braces(runtime, self.text(), arguments));
}

constexpr std::array kOfText = {
    Known{"capitalize", method_changed<capitalize>},
    Known{"count", counted},
    Known{"endswith", begins<true>},
    Known{"find", found},
    Known{"format", method_formatted},
    Known{"isalpha", is<is_alphabetic>},
    Known{"isascii", is<all_ascii>},
    Known{"isdecimal", is<is_decimal>},
    Known{"isdigit", is<is_decimal>},
    Known{"islower", is<is_lower>},
    Known{"isspace", is<all_space>},
    Known{"isupper", is<is_upper>},
    Known{"join", method_joined},
    Known{"lower", method_changed<lower>},
    Known{"lstrip", stripped<Side::left>},
    Known{"removeprefix", without<false>},
    Known{"removesuffix", without<true>},
    Known{"replace", method_replaced},
    Known{"rsplit", parted<true>},
    Known{"rstrip", stripped<Side::right>},
    Known{"split", parted<false>},
    Known{"splitlines", split_lines},
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
Value copied(Runtime&, const Value& self, Arguments& arguments) {
  const Parameters none("copy", arguments, {});
  return self;
}
constexpr std::array kOfDict = {Known{"copy", copied}, Known{"get", get}, Known{"items", dict_items},
                                Known{"keys", dict_keys}, Known{"values", dict_values}};

Value count_items(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("count", arguments, {"value"});
  runtime.step(self.items().size());
  return static_cast<std::int64_t>(std::count_if(self.items().begin(), self.items().end(), [&](const Value& item) {
    return item.equals(given.at("value"), runtime);
  }));
}
Value index_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters given("index", arguments, {"value"});
  runtime.step(self.items().size());
  for (std::size_t i = 0; i < self.items().size(); ++i)
    if (self.items()[i].equals(given.at("value"), runtime)) return static_cast<std::int64_t>(i);
  throw Fault("index: the value is not in the list");
}
constexpr std::array kOfList = {Known{"copy", copied}, Known{"count", count_items}, Known{"index", index_of}};
constexpr std::array kOfTuple = {Known{"count", count_items}, Known{"index", index_of}};

Method method_of(const Value& value, std::string_view name) {
  const auto among = [&](const auto& known) -> Method {
    for (const Known& method : known)
      if (method.name == name) return method.method;
    return nullptr;
  };
  switch (value.kind()) {
    case Kind::text:
      return among(kOfText);
    case Kind::dict:
      return among(kOfDict);
    case Kind::list:
      return among(kOfList);
    case Kind::tuple:
      return among(kOfTuple);
    default:
      return nullptr;
  }
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  return method_of(value, name) != nullptr;
}

Value call_method(Runtime& runtime, const Value& self, const std::string& name, Arguments& arguments) {
  return method_of(self, name)(runtime, self, arguments);
}

}  // namespace strata::text::jinja
