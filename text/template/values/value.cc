#include "text/template/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

constexpr std::size_t kManyKeys = 8;

int nesting_of(int most) {
  if (most >= Value::kMaxNesting) throw Fault("a value is nested deeper than {} levels", Value::kMaxNesting);
  return most + 1;
}

// a < b, compared exactly, because a double cannot represent every integer.
bool less_number(const Value& a, const Value& b) {
  if (!a.is(Kind::real) && !b.is(Kind::real)) return a.integer() < b.integer();
  return a.real() < b.real();
}

}  // namespace

Value Value::undefined(std::string why) {
  Value out;
  out.held_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return out;
}

Value::Value(Kind kind, std::vector<Value> items, std::string_view name) {
  int most = 0;
  for (const Value& item : items) most = std::max(most, item.nesting());
  const bool hashable = kind == Kind::tuple &&
                        std::all_of(items.begin(), items.end(), [](const Value& item) { return item.is_hashable(); });
  auto sequence = std::make_shared<const Sequence>(
      Sequence{.items = std::move(items), .nesting = nesting_of(most), .hashable = hashable, .name = name});
  if (kind == Kind::list)
    held_ = SequenceOf<Kind::list>{std::move(sequence)};
  else if (kind == Kind::tuple)
    held_ = SequenceOf<Kind::tuple>{std::move(sequence)};
  else
    held_ = SequenceOf<Kind::view>{std::move(sequence)};
}

bool Value::is_hashable() const {
  if (is_sequence()) return sequence().hashable;
  return !is(Kind::dict) && !is(Kind::undefined);
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  Meter meter;
  return dict(std::move(items), meter);
}

Value Value::dict(std::vector<std::pair<Value, Value>> items, Meter& meter) {
  auto dict = std::make_shared<Dict>();
  int most = 0;
  const bool many = items.size() > kManyKeys;
  const auto known = [&](const Value& key) {
    if (many && key.is(Kind::text)) {
      const auto it = dict->places.find(key.text());
      return it == dict->places.end() ? dict->items.size() : it->second;
    }
    const auto same = [&](const auto& item) { return item.first.equals(key, meter); };
    return static_cast<std::size_t>(std::find_if(dict->items.begin(), dict->items.end(), same) - dict->items.begin());
  };
  for (auto& [key, value] : items) {
    if (!key.is_hashable()) throw Fault("a {} cannot be the key of a dict", key.type_name());
    most = std::max({most, key.nesting(), value.nesting()});
    const std::size_t place = known(key);
    if (place < dict->items.size()) {
      dict->items[place].second = std::move(value);
      continue;
    }
    if (many && key.is(Kind::text)) dict->places.emplace(key.text(), place);
    dict->items.emplace_back(std::move(key), std::move(value));
  }
  dict->nesting = nesting_of(most);
  Value out;
  out.held_ = std::shared_ptr<const Dict>(std::move(dict));
  return out;
}

Value Value::object(Object& object) {
  Value out;
  out.held_ = &object;
  return out;
}

Value Value::method(Value self, std::string name) {
  Value out;
  out.held_ = std::make_shared<const Method>(
      Method{.self = std::make_shared<const Value>(std::move(self)), .name = std::move(name)});
  return out;
}

const std::string& Value::why() const {
  return *std::get<Undefined>(held_).why;
}
std::int64_t Value::integer() const {
  return is(Kind::boolean) ? std::int64_t{boolean()} : std::get<std::int64_t>(held_);
}
double Value::real() const {
  return is(Kind::real) ? std::get<double>(held_) : static_cast<double>(integer());
}
const std::string& Value::text() const {
  return std::get<std::shared_ptr<const Text>>(held_)->bytes;
}
bool Value::safe() const {
  return is(Kind::text) && std::get<std::shared_ptr<const Text>>(held_)->safe;
}
const Value::Sequence& Value::sequence() const {
  if (is(Kind::list)) return *std::get<SequenceOf<Kind::list>>(held_).sequence;
  if (is(Kind::tuple)) return *std::get<SequenceOf<Kind::tuple>>(held_).sequence;
  return *std::get<SequenceOf<Kind::view>>(held_).sequence;
}
const std::vector<Value>& Value::items() const {
  return sequence().items;
}
const std::vector<std::pair<Value, Value>>& Value::pairs() const {
  return std::get<std::shared_ptr<const Dict>>(held_)->items;
}
Object& Value::object() const {
  return *std::get<Object*>(held_);
}
const Value::Method& Value::method() const {
  return *std::get<std::shared_ptr<const Method>>(held_);
}

int Value::nesting() const {
  if (is_sequence()) return sequence().nesting;
  if (is(Kind::dict)) return std::get<std::shared_ptr<const Dict>>(held_)->nesting;
  if (is(Kind::method)) return method().self->nesting();
  return 0;
}

const Value* Value::find_value(const Value& key, Meter& meter) const {
  if (key.is(Kind::text)) return find(key.text());
  for (const auto& [known, value] : pairs())
    if (known.equals(key, meter)) return &value;
  return nullptr;
}

const Value* Value::find(std::string_view key) const {
  const Dict& dict = *std::get<std::shared_ptr<const Dict>>(held_);
  if (!dict.places.empty()) {
    const auto it = dict.places.find(key);
    return it == dict.places.end() ? nullptr : &dict.items[it->second].second;
  }
  for (const auto& [known, value] : dict.items)
    if (known.is(Kind::text) && known.text() == key) return &value;
  return nullptr;
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return boolean();
    case Kind::integer:
      return integer() != 0;
    case Kind::real:
      return real() != 0;
    case Kind::text:
      return !text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return !items().empty();
    case Kind::dict:
      return !pairs().empty();
    case Kind::object:
    case Kind::method:
      return true;
  }
  return false;
}

bool Value::equals(const Value& other, Meter& meter) const {
  meter.step();
  if (is_number() && other.is_number()) {
    if (is(Kind::real) || other.is(Kind::real)) return real() == other.real();
    return integer() == other.integer();
  }
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::text:
      if (text().size() == other.text().size()) meter.read(text().size());
      return text() == other.text();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return std::equal(items().begin(), items().end(), other.items().begin(), other.items().end(),
                        [&](const Value& a, const Value& b) { return a.equals(b, meter); });
    case Kind::dict:
      return pairs().size() == other.pairs().size() &&
             std::all_of(pairs().begin(), pairs().end(), [&](const auto& item) {
               const Value* found = other.find_value(item.first, meter);
               return found && found->equals(item.second, meter);
             });
    case Kind::object:
      return &object() == &other.object();
    case Kind::method:
      return method().name == other.method().name && method().self->equals(*other.method().self, meter);
    default:
      return true;  // undefined and none
  }
}

std::string_view Value::type_name() const {
  constexpr std::array<std::string_view, 10> kNames = {"Undefined", "None", "bool",  "int", "float",
                                                       "str",       "list", "tuple", "",    "dict"};  // by Kind
  static_assert(kNames.size() == static_cast<std::size_t>(Kind::dict) + 1);
  switch (kind()) {
    case Kind::view:
      return sequence().name;
    case Kind::object:
      return object().type_name();
    case Kind::method:
      return "method";
    default:
      return kNames[static_cast<std::size_t>(kind())];
  }
}

std::string Value::to_text(Meter& meter) const {
  if (!is(Kind::text)) return is(Kind::undefined) ? std::string() : to_repr(meter);
  meter.read(text().size());
  return text();
}

std::string Value::to_text() const {
  Meter meter;
  return to_text(meter);
}

std::string Value::to_repr(Meter& meter) const {
  std::string out;
  append_repr(out, meter);
  return out;
}

void Value::append_repr(std::string& out, Meter& meter) const {
  meter.step();
  meter.grown_to(out.size());
  const auto all = [&](std::string_view open, std::string_view close) {
    out += open;
    for (const Value& item : items()) {
      if (&item != &items().front()) out += ", ";
      item.append_repr(out, meter);
    }
    out += close;
  };
  switch (kind()) {
    case Kind::undefined:
      out += "Undefined";
      break;
    case Kind::none:
      out += "None";
      break;
    case Kind::boolean:
      out += boolean() ? "True" : "False";
      break;
    case Kind::integer:
      fmt::format_to(std::back_inserter(out), "{}", integer());
      break;
    case Kind::real:
      out += repr_of(real());
      break;
    case Kind::text:
      meter.read(text().size());
      out += safe() ? fmt::format("Markup({})", repr_of(text())) : repr_of(text());
      break;
    case Kind::list:
      all("[", "]");
      break;
    case Kind::tuple:
      all("(", ")");
      if (items().size() == 1) out.insert(out.size() - 1, ",");
      break;
    case Kind::dict:
      out += '{';
      for (const auto& [key, value] : pairs()) {
        if (&key != &pairs().front().first) out += ", ";
        key.append_repr(out, meter);
        out += ": ";
        value.append_repr(out, meter);
      }
      out += '}';
      break;
    case Kind::view:
      out += sequence().name;
      all("([", "])");
      break;
    case Kind::object:
    case Kind::method:
      throw Fault("a {} is not text: use its content, for example with |list or a call", type_name());
  }
}

Value Object::attribute(const std::string& name) {
  return Value::undefined(fmt::format("a {} has no attribute '{}'", type_name(), name));
}
Value Object::call(Arguments&) {
  throw Fault("a {} cannot be called", type_name());
}

Value Namespace::attribute(const std::string& name) {
  const auto it = attributes_.find(name);
  return it == attributes_.end() ? Object::attribute(name) : it->second;
}
void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_')) throw Fault("a namespace takes no attribute with an underscore: {}", name);
  attributes_.insert_or_assign(name, std::move(value));
}

std::int64_t integer_of(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (!value.is(Kind::integer) && !value.is(Kind::boolean))
    throw Fault("{} needs an int, not a {}", what, value.type_name());
  return value.integer();
}

const std::string& text_of(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) throw Fault(value.why());
  if (!value.is(Kind::text)) throw Fault("{} needs a str, not a {}", what, value.type_name());
  return value.text();
}

bool less(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is(Kind::undefined)) throw Fault(a.why());
  if (b.is(Kind::undefined)) throw Fault(b.why());
  if (a.is_number() && b.is_number()) return less_number(a, b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    meter.read(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // the bytewise order of UTF-8 is the order of code points
  }
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    const auto &left = a.items(), &right = b.items();
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!left[i].equals(right[i], meter)) return less(left[i], right[i], meter);
    return left.size() < right.size();
  }
  throw Fault("a {} and a {} cannot be ordered", a.type_name(), b.type_name());
}

}  // namespace strata::text::jinja
