#include "text/classes/record_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "base/quote.h"
#include "text/chat/record.h"
#include "text/chat/table.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;

// Hugging Face's number for a token without a label.
constexpr std::int64_t kIgnored = -100;
// The longest class name, in bytes.
constexpr std::size_t kLongestName = 256;

template <typename... Args>
[[noreturn]] void wrong_label(fmt::format_string<Args...> format, Args&&... args) {
  throw RecordFault{fmt::format(format, std::forward<Args>(args)...)};
}

// Whether programs write numbers like this. Leading zeros ("007"), an integer with "+" ("+49"), and an exponent without
// a sign ("1e5") are excluded, because codes look like that. A number with a decimal point may lack the digits on one
// side of it, as in C and pandas.
bool is_written_number(std::string_view text) {
  const auto take_digits = [&] {
    const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(n);
    return n;
  };
  const bool point = text.find('.') != text.npos;
  if (text == "-0") return false;
  if (text.starts_with('-') || (point && text.starts_with('+'))) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const std::size_t whole = take_digits();
  if (zero && whole > 1) return false;
  std::size_t decimals = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    decimals = take_digits();
  }
  if (whole + decimals == 0) return false;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool sign = text.starts_with('-') || text.starts_with('+');
    if (!sign && !point) return false;
    if (sign) text.remove_prefix(1);
    if (take_digits() == 0) return false;
  }
  return text.empty();
}

// The value of a table's field: a number if the whole field is one.
LabelValue from_text(const std::string& text, std::string_view field) {
  if (!is_written_number(text)) return text;
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  std::int64_t whole = 0;
  const auto [stop, fault] = std::from_chars(begin, end, whole);
  if (fault == std::errc() && stop == end) return whole;
  if (stop == end)  // as a double, it could be equal to another class
    throw RecordFault{fmt::format("the label \"{}\" is {}, which does not fit 64 bits: if it names a "
                                  "class, write it with a letter (id{}), and with a decimal point if it is a number",
                                  field, text, text),
                      Exit::usage};
  const auto real = parse_number<double>({begin, end});
  return real && std::isfinite(*real) ? LabelValue(*real) : LabelValue(text);
}

LabelValue value_of(const Value& value, std::string_view field, bool of_table) {
  switch (value.kind()) {
    case Kind::text:
      if (value.text().empty()) wrong_label("the label \"{}\" is empty", field);
      if (value.text().size() > kLongestName)
        throw RecordFault{
            fmt::format("the label \"{}\" has {} bytes, but class names have at most {}: check that it is a label",
                        field, value.text().size(), kLongestName),
            Exit::usage};
      if (of_table && value.text().starts_with('[') && value.text().ends_with(']'))
        throw RecordFault{fmt::format("the label \"{}\" is a list, {}, which a table cannot hold: give a column per "
                                      "class (--labels A,B,C, each 0 or 1), or write JSONL",
                                      field, value.text()),
                          Exit::usage};
      return of_table ? from_text(value.text(), field) : LabelValue(value.text());
    case Kind::boolean:
      return std::string(value.boolean() ? "true" : "false");
    case Kind::integer:
      return value.integer();
    case Kind::real:
      if (!std::isfinite(value.real()))
        wrong_label("the label \"{}\" is {}, which is not finite", field, value.to_text());
      return value.real();
    case Kind::none:
      wrong_label("the label \"{}\" is null", field);
    default:
      wrong_label("expected a name or a number in the label \"{}\", found {}", field, kind_text(value));
  }
}

const Value& field_of(const Value& record, std::string_view name, const char* option, bool of_table) {
  const Value* found = record.find(name);
  if (found) return *found;
  std::string names;
  for (const auto& [key, value] : record.pairs()) {
    const std::string field = key.to_text();
    if (names.size() < 100) names += (names.empty() ? "" : ", ") + excerpt(field, 100);
    // In a header "text, label", the second name begins with a space.
    const std::size_t begin = std::min(field.find_first_not_of(' '), field.size());
    if (field.substr(begin, field.find_last_not_of(' ') + 1 - begin) == name)
      throw RecordFault{
          fmt::format("there is no field \"{}\" ({}), only \"{}\" with a space: write names without spaces", name,
                      option, field),
          Exit::usage};
  }
  const bool spaced = name.starts_with(' ') || name.ends_with(' ');
  throw RecordFault{fmt::format("there is no field \"{}\" ({}); the fields are {}{}{}{}", name, option,
                                names.empty() ? "none" : names, spaced ? "; write names without spaces between" : "",
                                of_table ? ": " : "", of_table ? kHeaderNames : ""),
                    Exit::usage};
}

std::string_view text_of_field(const Value& record, std::string_view name, const char* option, bool of_table) {
  const Value& found = field_of(record, name, option, of_table);
  if (!found.is(Kind::text)) wrong_label("expected a string in \"{}\", found {}", name, kind_text(found));
  return found.text();
}

// An element of a list. A class cannot be a number with a decimal point.
LabelValue class_of(const Value& value, std::string_view field) {
  LabelValue out = value_of(value, field, false);
  if (std::holds_alternative<double>(out))
    wrong_label("expected names or numbers of classes in the list \"{}\", or a 0 or 1 for each class, found {}", field,
                text_of(out));
  return out;
}

// Records the flags of a list that may be a vector, that is, one that contains only 0 and 1.
void find_flags(const std::vector<Value>& items, std::string_view field, DocumentLabels& out) {
  bool numbers = true, whole = true, digits = true;  // all are 0 or 1; all are integers; all are "0" or "1" in quotes
  for (const Value& item : items) {
    double flag = -1;
    if (item.is(Kind::boolean)) flag = item.boolean() ? 1 : 0;
    if (item.is(Kind::integer)) flag = static_cast<double>(item.integer());
    if (item.is(Kind::real)) flag = item.real();
    numbers = numbers && (flag == 0 || flag == 1);
    whole = whole && item.is(Kind::integer);
    digits = digits && item.is(Kind::text) && (item.text() == "0" || item.text() == "1");
    out.flags.push_back(flag == 1 ? 1 : 0);
  }
  const bool twice = items.size() > 2 || (items.size() == 2 && out.flags[0] == out.flags[1]);
  if (digits && items.size() > 1 && (items.size() > 2 || items[0].text() == items[1].text()))
    wrong_label(
        "the list \"{}\" repeats \"0\" or \"1\" in quotes: if it says for each class whether the text belongs to it, "
        "write numbers; if these are names of classes, write each once",
        field);
  if (!numbers || items.empty()) out.flags.clear();
  out.is_vector = !out.flags.empty() && (!whole || twice);
}

// Adds one label per word.
void add_word_labels(const Value& labels, std::string_view field, ClassRecord& out) {
  if (!labels.is(Kind::list))
    wrong_label("expected a list of labels in \"{}\", one per word, found {}", field, kind_text(labels));
  if (labels.items().size() != out.words.size())
    wrong_label("there {} in \"{}\", but {}",
                labels.items().size() == 1 ? "is 1 label" : fmt::format("are {} labels", labels.items().size()), field,
                out.words.size() == 1 ? "1 word" : fmt::format("{} words", out.words.size()));
  out.labels.kind = DocumentLabels::Kind::words;
  for (const Value& label : labels.items()) {
    const bool ignored = label.is(Kind::none) || (label.is(Kind::integer) && label.integer() == kIgnored);
    out.labels.values.push_back(ignored ? std::nullopt : std::optional(class_of(label, field)));
  }
}

// The number of words that are separated by spaces.
std::size_t word_count(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::size_t words = 0;
  for (std::size_t at = 0; (at = text.find_first_not_of(kSpaces, at)) != text.npos; ++words)
    at = std::min(text.find_first_of(kSpaces, at), text.size());
  return words;
}

// Reads one field per class. Each field says whether the text belongs to that class.
void add_flags(const Value& record, const LabelRules& rules, ClassRecord& out) {
  out.labels.kind = DocumentLabels::Kind::many;
  for (const std::string& name : rules.labels) {
    const LabelValue value = value_of(field_of(record, name, "--labels", rules.of_table), name, rules.of_table);
    const std::string text = text_of(value);
    const auto* real = std::get_if<double>(&value);
    const bool yes = text == "1" || text == "true" || text == "True" || (real && *real == 1);
    const bool no = text == "0" || text == "false" || text == "False" || (real && *real == 0);
    if (!yes && !no) wrong_label("with several labels each is 0 or 1, but \"{}\" is {}", name, text);
    if (yes) out.labels.values.emplace_back(name);
  }
}

void add_labels(const Value& record, const LabelRules& rules, ClassRecord& out) {
  if (rules.labels.size() > 1) {
    if (out.has_words)
      wrong_label("a list of words has one list of labels, but --labels names {}", rules.labels.size());
    return add_flags(record, rules, out);
  }
  const std::string& name = rules.labels.front();
  const Value& found = field_of(record, name, "--labels", rules.of_table);
  if (out.has_words) return add_word_labels(found, name, out);
  if (!found.is(Kind::list)) {
    out.labels.values.emplace_back(value_of(found, name, rules.of_table));
    const std::size_t words = found.is(Kind::text) ? word_count(found.text()) : 1;
    out.labels.one_per_word = words == word_count(out.text);
    out.labels.several_words = words > 1;
    return;
  }
  out.labels.kind = DocumentLabels::Kind::many;
  find_flags(found.items(), name, out.labels);
  if (out.labels.is_vector) return;
  std::set<LabelValue> seen;  // a text has each class at most once
  for (const Value& label : found.items())
    if (LabelValue one = class_of(label, name); seen.insert(one).second) out.labels.values.emplace_back(std::move(one));
  out.labels.one_per_word = !found.items().empty() && found.items().size() == word_count(out.text);
}

}  // namespace

std::string text_of(const LabelValue& value) {
  if (const auto* name = std::get_if<std::string>(&value)) return *name;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
  return fmt::format("{}", std::get<double>(value));
}

ClassRecord class_record(const Value& record, const LabelRules& rules) {
  ClassRecord out;
  const Value& text = field_of(record, rules.text, "--field", rules.of_table);
  out.has_words = text.is(Kind::list);
  if (out.has_words) {
    if (rules.pair) wrong_label("\"{}\" is a list of words, which has no pair", rules.text);
    for (const Value& word : text.items()) {
      if (!word.is(Kind::text)) wrong_label("expected words in the list \"{}\", found {}", rules.text, kind_text(word));
      out.words.push_back(word.text());
    }
  } else {
    out.text = text_of_field(record, rules.text, "--field", rules.of_table);
  }
  if (rules.pair) {
    out.pair = text_of_field(record, *rules.pair, "--pair", rules.of_table);
    out.has_pair = true;
  }
  if (!rules.labels.empty()) add_labels(record, rules, out);
  return out;
}

}  // namespace strata::text
