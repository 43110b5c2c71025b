#include "text/chat/part_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "text/chat/table.h"
#include "text/json/json_value.h"
#include "text/template/values/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

constexpr const char* kOneList = " (if the file is one list, jq -c '.[]' makes a line of each record)";

// Errors name the column.
Value parsed(const RecordLocation& place, const std::vector<std::string>& read) {
  refuse_marks(place);
  try {
    std::vector<UnrepresentableNumber> odd;
    Value out = parse_json(place.text, RepeatedKeys::refused, &odd);
    for (const UnrepresentableNumber& number : odd)
      if (std::find(read.begin(), read.end(), number.field) != read.end())
        place.bad(fmt::format("the field \"{}\" holds {}, which is {}", number.field, excerpt(number.written, 40),
                              number.written.ends_with('N') || number.written.ends_with('y')
                                  ? "not a JSON number: leave the record out"
                                  : "out of range (64-bit integers, doubles): make it a string"));
    if (!out.is(Kind::dict))
      place.bad(fmt::format("expected a JSON object in a line, found {}{}", kind_text(out),
                            out.is(Kind::list) && place.line == 1 ? kOneList : ""));
    return out;
  } catch (const JsonFault& fault) {
    const bool list = place.line == 1 && place.text.starts_with('[');
    fail(Exit::corrupt, "{}, line {}, column {}: this is not JSON: {}{}", place.part.name, place.line,
         jinja::length_of(place.text.substr(0, fault.at)) + 1, fault.message, list ? kOneList : "");
  }
}

Value row(const RecordLocation& place, const std::vector<std::string>& names) {
  try {
    const std::vector<std::string> fields = fields_of(place.text, place.part.separator);
    if (fields.size() != names.size())
      place.bad(fmt::format("expected {} fields, as in the header, found {}", names.size(), fields.size()));
    std::vector<std::pair<Value, Value>> out;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!is_valid_utf8(fields[i]))
        place.bad(
            fmt::format("the field \"{}\" is not UTF-8: convert the file, with iconv -f WINDOWS-1252 -t UTF-8 if it "
                        "comes from an older Windows",
                        names[i]));
      out.emplace_back(Value(names[i]), Value(fields[i]));
    }
    return Value::dict(std::move(out));
  } catch (const TableFault& fault) {
    place.bad(fault.message);
  }
}

}  // namespace

void RecordLocation::bad(std::string_view what, Exit code) const {
  fail(code, "{}, line {}, offset {}: {}", part.name, line, part.offset + at, what);
}

void refuse_marks(const RecordLocation& place) {
  constexpr std::string_view kMark = "\xef\xbb\xbf", kLittle = "\xff\xfe", kBig = "\xfe\xff";
  if (place.text.starts_with(kMark))
    place.bad(
        "expected a JSON object in a line, found a byte order mark (EF BB BF): remove it with sed "
        "'s/^\\xef\\xbb\\xbf//'");
  if (place.text.starts_with(kLittle) || place.text.starts_with(kBig))
    place.bad("expected JSON in UTF-8, found the byte order mark of UTF-16: convert it with iconv -f UTF-16 -t UTF-8");
}

void each_record(const DocumentPart& part, const std::function<bool(const RecordLocation&)>& use) {
  const std::string_view all = part.text;
  std::uint64_t number = part.line;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = part.kind == InputKind::lines ? std::min(all.find('\n', at), all.size() - 1) + 1
                                                          : std::min(record_end(all, at, part.separator), all.size());
    const std::string_view text = all.substr(at, end - at);
    if (!is_blank(text) && !use({part, number, at, text})) return;
    number += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    at = end;
  }
}

std::vector<std::string> header_names(const DocumentPart& part) {
  if (part.kind == InputKind::lines || part.kind == InputKind::plain) return {};
  try {
    std::vector<std::string> names = fields_of(part.header, part.separator);
    if (names.size() == 1 && names[0].find_first_of(";\t,|") != std::string::npos)
      fail(Exit::corrupt,
           "{}, line 1: the header is one field, \"{}\": .csv is separated by commas and .tsv by tabs ({})", part.name,
           names[0],
           names[0].find('\t') != std::string::npos ? "give it a name that ends in .tsv"
           : names[0].find(';') != std::string::npos
               ? "a first line \"sep=;\" sets another separator, or mlr --icsv --ifs ';' --ocsv cat rewrites it"
               : "a first line such as \"sep=|\" sets another separator");
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty() && std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
                                   names.begin() + static_cast<std::ptrdiff_t>(i))
        fail(Exit::corrupt, "{}, line 1: the header names \"{}\" twice: rename one of the columns", part.name,
             names[i]);
    return names;
  } catch (const TableFault& fault) {
    fail(Exit::corrupt, "{}, line 1: {}", part.name, fault.message);
  }
}

Value value_of(const RecordLocation& place, const std::vector<std::string>& names,
               const std::vector<std::string>& read) {
  return place.part.kind == InputKind::lines ? parsed(place, read) : row(place, names);
}

std::optional<Value> first_record(const DocumentPart& part) {
  std::optional<Value> out;
  if (part.kind == InputKind::plain) return out;
  const auto names = header_names(part);
  each_record(part, [&](const RecordLocation& place) {
    out = value_of(place, names);
    return false;
  });
  return out;
}

}  // namespace strata::text
