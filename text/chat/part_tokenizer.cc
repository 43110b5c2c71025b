#include "text/chat/part_tokenizer.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/chat/json_value.h"
#include "text/chat/table.h"
#include "text/template/values/python_text.h"

namespace strata::text {

using jinja::Kind;
using jinja::Value;

// A record and its place.
struct PartTokenizer::Line {
  const DocumentPart& part;
  std::uint64_t number;
  std::size_t at;  // in the part
  std::string_view text;
};

namespace {

[[noreturn]] void bad(const DocumentPart& part, std::uint64_t line, std::size_t at, std::string_view what) {
  fail(Exit::corrupt, "{}, line {}, offset {}: {}", part.name, line, part.offset + at, what);
}

void refuse_marks(const DocumentPart& part, std::uint64_t line, std::size_t at, std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf", kLittle = "\xff\xfe", kBig = "\xfe\xff";
  if (text.starts_with(kMark))
    bad(part, line, at,
        "expected a JSON object in a line, found a byte order mark (EF BB BF): remove it with sed "
        "'s/^\\xef\\xbb\\xbf//'");
  if (text.starts_with(kLittle) || text.starts_with(kBig))
    bad(part, line, at,
        "expected JSON in UTF-8, found the byte order mark of UTF-16: convert it with iconv -f UTF-16 -t UTF-8");
}

// The object in a line. Errors name the column.
Value parsed(const DocumentPart& part, std::uint64_t line, std::size_t at, std::string_view text) {
  refuse_marks(part, line, at, text);
  try {
    Value out = parse_json(text);
    if (!out.is(Kind::dict))
      bad(part, line, at, fmt::format("expected a JSON object in a line, found a {}", out.type_name()));
    return out;
  } catch (const JsonFault& fault) {
    fail(Exit::corrupt, "{}, line {}, column {}: this is no JSON: {}", part.name, line,
         jinja::length_of(text.substr(0, fault.at)) + 1, fault.message);
  }
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

char separator_of(const DocumentPart& part) {
  return part.kind == InputKind::tab_table ? '\t' : ',';
}

// A record of a table by the names in its header.
Value row(const DocumentPart& part, const std::vector<std::string>& names, std::uint64_t line, std::size_t at,
          std::string_view text) {
  const std::vector<std::string> fields = fields_of(text, separator_of(part));
  if (fields.size() != names.size())
    bad(part, line, at, fmt::format("expected {} fields, as in the header, found {}", names.size(), fields.size()));
  std::vector<std::pair<Value, Value>> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!jinja::is_utf8(fields[i])) bad(part, line, at, fmt::format("the field \"{}\" is not UTF-8", names[i]));
    out.emplace_back(Value(names[i]), Value(fields[i]));
  }
  return Value::dict(std::move(out));
}

// Calls use(line number, place, text) for each record that is not blank.
template <typename Use>
void each_record(const DocumentPart& part, Use&& use) {
  const std::string_view all = part.text;
  std::uint64_t number = part.line;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = part.kind == InputKind::lines ? std::min(all.find('\n', at), all.size() - 1) + 1
                                                          : std::min(record_end(all, at), all.size());
    const std::string_view text = all.substr(at, end - at);
    if (!is_blank(text) && !use(number, at, text)) return;
    number += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    at = end;
  }
}

}  // namespace

PartTokenizer::PartTokenizer(const Tokenizer& tokenizer, const RecordRules& rules)
    : tokenizer_(tokenizer),
      rules_(rules),
      workspace_(tokenizer.workspace()),
      places_(tokenizer, *workspace_),
      parser_(std::make_unique<simdjson::dom::parser>()) {
  const auto plain = tokenizer.encode("a"), whole = tokenizer.encode("a", true);
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  before_.assign(whole.begin(), at);
  behind_.assign(
      at + static_cast<std::ptrdiff_t>(std::min<std::size_t>(plain.size(), static_cast<std::size_t>(whole.end() - at))),
      whole.end());
}

PartTokenizer::~PartTokenizer() = default;

void PartTokenizer::run(const DocumentPart& part, PartTokens& out) {
  out.ids.clear();
  out.counts.clear();
  out.begins.clear();
  out.unlabelled = 0;
  switch (part.kind) {
    case InputKind::plain:
      if (part.begins) out.begins.push_back(0);
      return text(part.text, out);
    case InputKind::lines:
      return lines(part, out);
    case InputKind::comma_table:
    case InputKind::tab_table:
      return table(part, out);
  }
}

void PartTokenizer::text(std::string_view text, PartTokens& out) {
  tokenizer_.encode(text, rules_.add_special, *workspace_, out.ids);
}

void PartTokenizer::lines(const DocumentPart& part, PartTokens& out) {
  each_record(part, [&](std::uint64_t number, std::size_t at, std::string_view json) {
    const Line line{part, number, at, json};
    out.begins.push_back(out.ids.size());
    if (rules_.format == DataFormat::text)
      text(field_of(line), out);
    else
      record(parsed(part, number, at, json), line, out);
    return true;
  });
}

void PartTokenizer::table(const DocumentPart& part, PartTokens& out) {
  const std::vector<std::string> names = fields_of(part.header, separator_of(part));
  each_record(part, [&](std::uint64_t number, std::size_t at, std::string_view text) {
    const Line line{part, number, at, text};
    out.begins.push_back(out.ids.size());
    record(row(part, names, number, at, text), line, out);
    return true;
  });
}

// Without making values of the other fields.
std::string_view PartTokenizer::field_of(const Line& line) {
  simdjson::dom::element root, value;
  refuse_marks(line.part, line.number, line.at, line.text);
  if (parser_->parse(line.text.data(), line.text.size()).get(root) != simdjson::SUCCESS) {
    (void)parsed(line.part, line.number, line.at, line.text);
    bad(line.part, line.number, line.at, "expected a JSON object in a line");
  }
  std::string_view text;
  const bool there = root[rules_.field].get(value) == simdjson::SUCCESS;
  if (!there || value.get_string().get(text) != simdjson::SUCCESS)
    bad(line.part, line.number, line.at,
        fmt::format("expected a string \"{}\" in each line, found {}", rules_.field,
                    there ? "something else" : "none"));
  return text;
}

void PartTokenizer::record(const Value& record, const Line& line, PartTokens& out) {
  try {
    if (rules_.format == DataFormat::text) {
      text(text_field(record, rules_.field), out);
    } else if (rules_.templated()) {
      labelled(labelled_text(*rules_.made, conversation_of(record, rules_.format), rules_.train_on), line, out);
    } else {
      const Completion document = completion_of(record, rules_.format);
      LabelledText labels{document.prompt + document.answer, {}};
      const std::size_t begin = rules_.train_on == TrainOn::all ? 0 : document.prompt.size();
      if (begin < labels.text.size()) labels.labels.push_back({begin, labels.text.size()});
      labelled(labels, line, out);
    }
  } catch (const RecordFault& fault) {
    bad(line.part, line.number, line.at, fault.message);
  } catch (const Error& error) {
    if (error.code() != Exit::usage) throw;
    fail(Exit::corrupt, "{}, line {}: {}", line.part.name, line.number, error.what());
  }
}

void PartTokenizer::labelled(const LabelledText& document, const Line& line, PartTokens& out) {
  const bool around = rules_.add_special && !rules_.templated();
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> counts;
  tokenizer_.encode(document.text, false, *workspace_, ids);
  if (!places_.mark(document.text, ids, document.labels, counts))
    bad(line.part, line.number, line.at,
        fmt::format("the tokenizer {} changes this text so that the place of what is trained on is not known: leave "
                    "the line out, or use --train-on all",
                    tokenizer_.name()));
  if (around) {
    const bool all = rules_.train_on == TrainOn::all;
    ids.insert(ids.begin(), before_.begin(), before_.end());
    counts.insert(counts.begin(), before_.size(), all ? 1 : 0);
    ids.insert(ids.end(), behind_.begin(), behind_.end());
    counts.insert(counts.end(), behind_.size(), 1);
  }
  if (rules_.end && !rules_.templated()) {
    ids.push_back(*rules_.end);
    counts.push_back(1);
  }
  if (std::find(counts.begin(), counts.end(), 1) == counts.end()) ++out.unlabelled;
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.counts.insert(out.counts.end(), counts.begin(), counts.end());
}

std::optional<Value> first_record(const DocumentPart& part) {
  std::optional<Value> out;
  if (part.kind == InputKind::plain) return out;
  const auto names =
      part.kind == InputKind::lines ? std::vector<std::string>() : fields_of(part.header, separator_of(part));
  each_record(part, [&](std::uint64_t number, std::size_t at, std::string_view text) {
    out = part.kind == InputKind::lines ? parsed(part, number, at, text) : row(part, names, number, at, text);
    return false;
  });
  return out;
}

}  // namespace strata::text
