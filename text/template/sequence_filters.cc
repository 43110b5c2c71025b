#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"

// Filters on lists, dicts and other iterables; and `default`.
namespace strata::text::jinja {
namespace {

Value or_default(Runtime&, const Value& value, Arguments& arguments) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  if (!value.is(Kind::undefined) && (value.truthy() || !given.flag("boolean", false))) return value;
  const Value* otherwise = given.find("default_value");
  return otherwise ? *otherwise : Value(std::string());
}

Value length(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("length", arguments, {});
  switch (value.kind()) {
    case Kind::undefined:
      return std::int64_t{0};
    case Kind::text:
      runtime.read(value.text().size());
      return static_cast<std::int64_t>(length_of(value.text()));
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<std::int64_t>(value.pairs().size());
    default:
      throw Fault("a {} has no length", value.type_name());
  }
}

// x.a.b or x[0] for the path "a.b" or "0", as in the filters' `attribute=`.
Value by_path(Runtime& runtime, Value value, const Value& path) {
  if (path.is(Kind::integer)) return runtime.item(value, path);
  for (const std::string_view part : split(text_of(path, "attribute"), ".", -1, false)) {
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number && part.size() > 9) throw Fault("attribute: the number is too large");
    value = runtime.item(value, number ? Value(std::int64_t{std::stoi(std::string(part))}) : Value(std::string(part)));
  }
  return value;
}

// The value, or its attribute if a path is given.
Value value_or_attribute(Runtime& runtime, const Value& value, const Value* path) {
  return path ? by_path(runtime, value, *path) : value;
}

// The key for comparisons: the value or its attribute, in lower case unless case counts.
Value key_of(Runtime& runtime, const Value& value, const Value* path, bool case_sensitive) {
  Value out = value_or_attribute(runtime, value, path);
  return !case_sensitive && out.is(Kind::text) ? runtime.text(lower(out.text())) : out;
}

void sort_by(Runtime& runtime, std::vector<Value>& items, const std::function<Value(const Value&)>& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    runtime.step();
    return reverse ? less(b.first, a.first, runtime) : less(a.first, b.first, runtime);
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
}

Value sorted(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = runtime.items_of(value);
  const bool case_sensitive = given.flag("case_sensitive", false);
  const Value* path = given.find_some("attribute");
  if (path && path->is(Kind::text) && path->text().find(',') != std::string::npos)
    throw Fault("sort takes one attribute: sort several times, by the most important one last");
  const auto key = [&](const Value& item) { return key_of(runtime, item, path, case_sensitive); };
  sort_by(runtime, items, key, given.flag("reverse", false));
  return runtime.list(std::move(items));
}

std::vector<Value> pairs_of(Runtime& runtime, const Value& value, std::string_view filter) {
  if (value.is(Kind::undefined)) return {};
  if (!value.is(Kind::dict)) throw Fault("{} needs a dict, not a {}", filter, value.type_name());
  std::vector<Value> out;
  for (const auto& [key, item] : value.pairs()) out.push_back(runtime.tuple({key, item}));
  return out;
}

Value dict_sorted(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.text("by", "key");
  if (by != "key" && by != "value") throw Fault("dictsort: `by` must be key or value");
  if (value.is(Kind::undefined)) throw Fault(value.why());
  std::vector<Value> items = pairs_of(runtime, value, "dictsort");
  const auto key = [&](const Value& pair) {
    return key_of(runtime, pair.items()[by == "key" ? 0 : 1], nullptr, given.flag("case_sensitive", false));
  };
  sort_by(runtime, items, key, given.flag("reverse", false));
  return runtime.list(std::move(items));
}
Value items(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("items", arguments, {});
  return runtime.iterator(pairs_of(runtime, value, "items"));
}

Value joined(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("join", arguments, {"d", "attribute"});
  const Value* between = given.find("d");
  const Value* path = given.find_some("attribute");
  std::string out;
  bool first = true;
  for (const Value& item : runtime.items_of(value)) {
    if (!std::exchange(first, false) && between) out += between->to_text(runtime);
    out += value_or_attribute(runtime, item, path).to_text(runtime);
    runtime.grown_to(out.size());
  }
  return runtime.text(std::move(out));
}

Value to_list(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return runtime.list(runtime.items_of(value));
}

Value first(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("first", arguments, {});
  if (value.is(Kind::object))
    if (auto* iterator = dynamic_cast<Iterator*>(&value.object()))
      if (const Value* next = iterator->next()) return *next;
  if (value.is(Kind::text))  // avoids a list of all its characters
    return value.text().empty() ? Value::undefined("the text is empty: it has no first element")
                                : runtime.item(value, Value(std::int64_t{0}));
  const std::vector<Value> all = runtime.items_of(value);
  return all.empty() ? Value::undefined("the list is empty: it has no first element") : all.front();
}
Value last(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none("last", arguments, {});
  if (value.is(Kind::object)) throw Fault("a {} has no last element: make it a |list", value.type_name());
  const std::vector<Value> all = runtime.items_of(value);
  return all.empty() ? Value::undefined("the list is empty: it has no last element") : all.back();
}

template <bool kMost>
Value extreme(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters none(kMost ? "max" : "min", arguments, {});
  const std::vector<Value> all = runtime.items_of(value);
  if (all.empty()) return Value::undefined("the list is empty: it has no smallest or largest element");
  const auto below = [&](const Value& a, const Value& b) { return less(a, b, runtime); };
  const auto key = [&](const Value& item) { return key_of(runtime, item, nullptr, false); };
  return *(kMost ? std::ranges::max_element(all, below, key) : std::ranges::min_element(all, below, key));
}

Value unique(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> keys, out;
  for (const Value& item : runtime.items_of(value)) {
    Value key = key_of(runtime, item, given.find_some("attribute"), given.flag("case_sensitive", false));
    runtime.step(keys.size());
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return known.equals(key, runtime); })) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return runtime.iterator(std::move(out));
}

// The items for `map` and `select`. As in Jinja, a false value (none, for example) has no items.
std::vector<Value> items_if_true(Runtime& runtime, const Value& value) {
  return value.truthy() ? runtime.items_of(value) : std::vector<Value>();
}

Value mapped(Runtime& runtime, const Value& value, Arguments& arguments) {
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const Parameters given("map", arguments, {"attribute", "default"});
    const Value* otherwise = given.find("default");
    for (const Value& item : items_if_true(runtime, value)) {
      const Value found = by_path(runtime, item, given.at("attribute"));
      out.push_back(otherwise && found.is(Kind::undefined) ? *otherwise : found);
    }
  } else {
    const std::string name = text_of(arguments.positional.front(), "map");
    for (const Value& item : items_if_true(runtime, value)) {
      Arguments rest{.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
                     .named = arguments.named};
      out.push_back(runtime.filter(name, item, rest));
    }
  }
  return runtime.iterator(std::move(out));
}

// The items of `value` for which the test (of an attribute) returns `kWanted`.
template <bool kOfAttribute, bool kWanted>
Value chosen(Runtime& runtime, const Value& value, Arguments& arguments) {
  const auto& given = arguments.positional;
  const std::size_t name = kOfAttribute ? 1 : 0;
  if (kOfAttribute && given.empty()) throw Fault("selectattr and rejectattr need the name of an attribute");
  std::vector<Value> out;
  for (const Value& item : items_if_true(runtime, value)) {
    const Value tested = kOfAttribute ? by_path(runtime, item, given[0]) : item;
    bool is = tested.truthy();
    if (given.size() > name) {
      Arguments rest{.positional = {given.begin() + static_cast<std::ptrdiff_t>(name) + 1, given.end()},
                     .named = arguments.named};
      is = runtime.test(text_of(given[name], "select"), tested, rest);
    }
    if (is == kWanted) out.push_back(item);
  }
  return runtime.iterator(std::move(out));
}

constexpr Named<Filter> kFilters[] = {
    {"d", or_default},
    {"default", or_default},
    {"dictsort", dict_sorted},
    {"first", first},
    {"items", items},
    {"join", joined},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"map", mapped},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", chosen<false, false>},
    {"rejectattr", chosen<true, false>},
    {"select", chosen<false, true>},
    {"selectattr", chosen<true, true>},
    {"sort", sorted},
    {"unique", unique},
};

}  // namespace

std::span<const Named<Filter>> sequence_filters() {
  return kFilters;
}

}  // namespace strata::text::jinja
