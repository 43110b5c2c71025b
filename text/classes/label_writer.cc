#include "text/classes/label_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "base/quote.h"
#include "base/words.h"
#include "text/template/values/json_text.h"

namespace strata::text {

namespace {

// A sidecar file lists all names, and is at most 1 MiB.
constexpr std::size_t kMaxClasses = 16384;
constexpr std::size_t kMaxNameBytes = std::size_t{1} << 19;
// Hugging Face's number for "no label".
constexpr std::int64_t kNoLabel = -100;

std::string json_of(const std::optional<LabelValue>& value) {
  if (!value) return "null";
  if (const auto* name = std::get_if<std::string>(&*value)) return jinja::json_text(jinja::Value(*name), {});
  return text_of(*value);
}

// Whether this is how tables write a missing number. If it is the only such label, it may well be a name.
bool is_not_finite(const std::string& text) {
  return !std::isfinite(parse_number<double>(text).value_or(0));
}

std::int64_t number_of(const std::string& text) {
  std::int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace

LabelWriter::LabelWriter(AtomicFile& file, std::vector<std::string> fields)
    : file_(file), fields_(std::move(fields)), least_(std::numeric_limits<double>::infinity()), most_(-least_) {}

void LabelWriter::write(const std::string& line) {
  file_.write(std::as_bytes(std::span(line)));
}

void LabelWriter::add(const DocumentLabels& labels, std::string_view file) {
  using Kind = DocumentLabels::Kind;
  if (documents_++ == 0) kind_ = labels.kind;
  one_per_word_ = one_per_word_ && labels.one_per_word;
  if (labels.kind == Kind::one && labels.several_words && several_words_++ == 0)
    several_name_ = text_of(*labels.values.front());
  const auto place = [&] {
    return file.empty() ? fmt::format("record {}", documents_) : fmt::format("{}, line {}", file, labels.line);
  };
  if (kind_ != labels.kind) {
    const auto what = [](Kind kind) {
      return kind == Kind::one ? "one label" : kind == Kind::many ? "a list of labels" : "a label per word";
    };
    fail(Exit::corrupt, "{} has {}, but the earlier documents have {}", place(), what(labels.kind), what(kind_));
  }
  if (kind_ == Kind::many && fields_.size() == 1) return add_list(labels, place());
  add_values(labels, place());
}

void LabelWriter::add_list(const DocumentLabels& labels, const std::string& place) {
  using Kind = DocumentLabels::Kind;
  const std::size_t length = labels.is_vector ? labels.flags.size() : labels.values.size();
  const bool may_be_vector = !labels.flags.empty();
  if (documents_ == 1) {
    columns_ = length;
    first_list_ = place;
  }
  if (length == 0) {
    if (!empty_list_) empty_list_ = place;
  } else {
    if (length_ == 0) length_ = length;
    all_may_be_vectors_ = all_may_be_vectors_ && may_be_vector && length == length_;
  }
  if (lists_ == Lists::open) {
    if (labels.is_vector) {
      lists_ = length == columns_ ? Lists::vectors : Lists::classes;
    } else if (!may_be_vector || length != columns_) {
      lists_ = Lists::classes;
    }
    if (lists_ == Lists::vectors) column_counts_.resize(columns_);
    // Write the lists that were held back until their kind was known.
    if (lists_ != Lists::open) {
      DocumentLabels both{.kind = Kind::many};
      for (const bool rising : std::exchange(open_, {})) {
        if (lists_ == Lists::vectors) {
          add_vector({static_cast<std::uint8_t>(!rising), static_cast<std::uint8_t>(rising)});
          continue;
        }
        both.values = {LabelValue(std::int64_t{!rising}), LabelValue(std::int64_t{rising})};
        add_values(both, first_list_);
      }
    }
  }
  if (lists_ == Lists::vectors && may_be_vector && labels.flags.size() == columns_) return add_vector(labels.flags);
  if (lists_ == Lists::vectors || labels.is_vector)
    fail(
        Exit::usage,
        "--labels {}: {} has a list of {}{}, but {} has one of {}, so the lists may be vectors (0 or 1 for each class, "
        "all of one length) or names of classes: write vectors of one length, or the classes as names (\"a\", \"b\")",
        fields_.front(), first_list_, columns_, lists_ == Lists::vectors ? ", each 0 or 1" : "", place, length);
  // Keep [0, 1] and [1, 0] as one bit each, because there may be many.
  if (lists_ == Lists::open && columns_ == 2) return open_.push_back(labels.flags[1] == 1);
  add_values(labels, place);
}

void LabelWriter::add_vector(const std::vector<std::uint8_t>& flags) {
  one_per_word_ = false;
  JsonArray names(JsonLayout::spaced);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    ++column_counts_[i];
    names.add(fmt::format("LABEL_{}", i));
  }
  write(JsonObject(JsonLayout::spaced).add("labels", names).text() + "\n");
}

void LabelWriter::add_values(const DocumentLabels& labels, const std::string& place) {
  using Kind = DocumentLabels::Kind;
  JsonObject line(JsonLayout::spaced);
  JsonArray list(JsonLayout::spaced);
  for (const auto& value : labels.values) {
    const std::string json = json_of(value);
    if (kind_ == Kind::one) line.add("label", JsonText{json});
    if (kind_ != Kind::one) list.add(JsonText{json});
    if (!value) continue;
    if (kind_ != Kind::words && !none_ && *value == LabelValue(kNoLabel)) none_ = First{place, text_of(*value)};
    const bool name = std::holds_alternative<std::string>(*value);
    all_whole_ = all_whole_ && std::holds_alternative<std::int64_t>(*value);
    if (name) {
      if (!name_) name_ = First{place, text_of(*value)};
      only_nan_ = only_nan_ && is_not_finite(text_of(*value));
    } else {
      number_ = true;
      if (std::holds_alternative<double>(*value) && !real_) real_ = First{place, text_of(*value)};
    }
    if (!name) {
      const double number = std::holds_alternative<double>(*value)
                                ? std::get<double>(*value)
                                : static_cast<double>(std::get<std::int64_t>(*value));
      fraction_ = fraction_ || number != std::trunc(number);
      least_ = std::min(least_, number);
      most_ = std::max(most_, number);
    }
    if (!too_many_) ++classes_[text_of(*value)];
    if (classes_.size() > kMaxClasses) {
      too_many_ = true;
      classes_.clear();
    }
  }
  if (kind_ != Kind::one) line.add("labels", list);
  write(line.text() + "\n");
}

// Refuses labels that look like lists of classes rather than long names.
void LabelWriter::refuse_joined(const std::string& named) const {
  constexpr std::string_view kWords =
      "write JSONL with a list of words and a list of labels, one per word (--field for the words)";
  if (one_per_word_ && several_words_ > 1)
    fail(Exit::usage,
         "{}: each label has as many words as its text, such as \"{}\", so they may be labels of words: if they are, "
         "{}; if each label is the name of one class, write it without spaces",
         named, excerpt(several_name_, 40), kWords);
  const auto joined = joined_label(classes_);
  if (!joined) return;
  const std::string more = joined->more > 0 ? fmt::format(", and {} like it,", joined->more) : "";
  if (joined->tags)
    fail(Exit::usage, "{}: the label \"{}\"{} consists of tags of words: {}", named, excerpt(joined->name, 40), more,
         kWords);
  JsonArray list(JsonLayout::spaced);
  for (const std::string& part : joined->parts) list.add(JsonText{json_of(part)});
  const bool numbers = std::ranges::all_of(
      joined->parts, [](const std::string& part) { return part.find_first_not_of("0123456789") == part.npos; });
  fail(Exit::usage,
       "{}: the label \"{}\"{} seems to be several labels, because its parts are {}: if a text has several classes, "
       "write JSONL with lists ({}), or a column per class (--labels A,B,C, each 0 or 1); if it is the name of one "
       "class, write it without \"{}\"{}",
       named, excerpt(joined->name, 40), more, numbers ? "numbers" : "labels of other records", list.text(),
       joined->separator, numbers && joined->separator == ',' ? "; if it is a number, with a decimal point" : "");
}

LabelSummary LabelWriter::finish() {
  using Kind = DocumentLabels::Kind;
  if (lists_ == Lists::open && !open_.empty()) {  // all have one length, and contain only 0 and 1
    lists_ = Lists::vectors;
    column_counts_.resize(columns_);
    for (const bool rising : std::exchange(open_, {}))
      add_vector({static_cast<std::uint8_t>(!rising), static_cast<std::uint8_t>(rising)});
  }
  if (kind_ == Kind::many && fields_.size() == 1 && lists_ == Lists::open && columns_ == 1 && documents_ > 0)
    fail(Exit::usage,
         "--labels {}: each list has one number, 0 or 1, which is ambiguous: write the numbers without brackets if "
         "they are two classes, or as 0.0 and 1.0 if they say whether a text belongs to a single class",
         fields_.front());
  if (empty_list_ && length_ > 0 && all_may_be_vectors_)
    fail(Exit::usage,
         "--labels {}: {} has an empty list, but all others have {} of 0 or 1, so they may be vectors (0 or 1 for each "
         "class) or name the classes 0 and 1: write zeros in the empty list, or the classes as names (\"a\", \"b\")",
         fields_.front(), *empty_list_, length_ == 1 ? "one number" : fmt::format("{} numbers", length_));
  file_.flush();
  LabelSummary out{.documents = documents_};
  out.problem = kind_ == Kind::one    ? "single_label_classification"
                : kind_ == Kind::many ? "multi_label_classification"
                                      : "token_classification";
  const std::string named = fmt::format("--labels {}", fmt::join(fields_, ","));
  if (lists_ == Lists::vectors) {
    out.vectors = true;
    if (columns_ > kMaxClasses)
      fail(Exit::usage, "{}: the lists have {} entries, more than {}: check that they are labels", named, columns_,
           kMaxClasses);
    for (std::size_t i = 0; i < columns_; ++i) out.names.push_back(fmt::format("LABEL_{}", i));
    out.counts = column_counts_;
    return out;
  }
  if (name_ && number_ && (real_ || only_nan_))
    fail(Exit::usage,
         "{}: {} has \"{}\", but {}: a regression needs a number in each record, and classes are names or integers; "
         "leave such records out, or correct them",
         named, name_->place, excerpt(name_->text, 40),
         real_ ? fmt::format("{} the number {}", real_->place, real_->text) : "the others have numbers");
  if (kind_ == Kind::one && !name_ && real_) {
    out.problem = "regression";
    out.least = least_;
    out.most = most_;
    out.all_whole = !fraction_;
    return out;
  }
  out.one_per_word = kind_ == Kind::many && one_per_word_;
  if (too_many_)
    fail(Exit::usage,
         "{} has more than {} different values: check that it is a label (numbers with a decimal point are a "
         "regression)",
         named, kMaxClasses);
  if (none_)
    fail(Exit::usage,
         "{}: {} has the label {}, which means \"no label\" in Hugging Face's data sets: leave such records out", named,
         none_->place, none_->text);
  if (kind_ == Kind::one) refuse_joined(named);
  std::vector<std::pair<std::string, std::uint64_t>> classes(classes_.begin(), classes_.end());
  if (all_whole_)
    std::sort(classes.begin(), classes.end(),
              [](const auto& a, const auto& b) { return number_of(a.first) < number_of(b.first); });
  if (fields_.size() > 1) {
    classes.clear();
    for (const std::string& field : fields_) classes.emplace_back(field, classes_[field]);
  }
  std::size_t bytes = 0;  // in the form of the sidecar: in quotes, with ", "
  for (const auto& [name, count] : classes) bytes += json_of(name).size() + 2;
  if (bytes > kMaxNameBytes)
    fail(Exit::usage, "{}: the names of the {} classes have {} bytes, more than {}: check that it is a label", named,
         classes.size(), bytes, kMaxNameBytes);
  if (classes_.empty()) fail(Exit::usage, "{}: no record has a label: check the name of the field", named);
  for (auto& [name, count] : classes) {
    out.names.push_back(std::move(name));
    out.counts.push_back(count);
  }
  return out;
}

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::vector<std::string> parts_of(std::string_view name, char separator) {
  std::vector<std::string> out;
  for (std::string_view part : split_list(name, separator)) {
    part.remove_prefix(std::min(part.find_first_not_of(kSpaces), part.size()));
    part = part.substr(0, part.find_last_not_of(kSpaces) + 1);
    if (!part.empty()) out.emplace_back(part);
  }
  return out;
}

bool is_tag(std::string_view part) {
  return part == "O" || (part.size() > 2 && (part.starts_with("B-") || part.starts_with("I-")));
}
bool is_number(std::string_view part) {
  return part.find_first_not_of("0123456789") == part.npos;
}
bool are_tags(const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(), is_tag) &&
         std::any_of(parts.begin(), parts.end(), [](const std::string& part) { return part != "O"; });
}

}  // namespace

std::optional<JoinedLabel> joined_label(const std::map<std::string, std::uint64_t>& classes) {
  constexpr std::string_view kSeparators = ",;| /+&";
  constexpr std::uint64_t kOfNames = 3;  // how many labels must use a separator that also occurs in ordinary names
  for (const char separator : kSeparators) {
    const bool of_lists = separator == ',' || separator == ';' || separator == '|';
    std::map<std::string, std::set<std::string_view>> within;  // for each part, the labels that contain it
    std::vector<std::pair<std::string_view, std::vector<std::string>>> several;
    std::optional<JoinedLabel> first;
    std::uint64_t of_classes = 0, tags = 0;
    for (const auto& [name, count] : classes) {
      std::vector<std::string> parts = parts_of(name, separator);
      for (const std::string& part : parts) within[part].insert(name);
      if (parts.size() < 2) continue;
      const bool all_tags = separator == ' ' && are_tags(parts);
      const bool all_numbers = of_lists && std::all_of(parts.begin(), parts.end(), is_number);
      const bool all_classes = all_numbers || std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
                                 return part != name && classes.contains(part);
                               });
      if (all_tags) ++tags;
      if (all_classes) ++of_classes;
      if (!first && (all_tags || all_classes)) first = JoinedLabel{name, parts, separator};
      several.emplace_back(name, std::move(parts));
    }
    if (tags > 0 || of_classes >= (of_lists ? 1 : kOfNames)) {
      first->tags = tags > 0;
      first->more = std::max(tags, of_classes) - 1;
      return first;
    }
    if (!of_lists || several.size() < kOfNames || within.size() * 2 > several.size()) continue;
    std::uint64_t shared = 0;
    for (auto& [name, parts] : several) {
      if (!std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return within[part].size() > 1; }))
        continue;
      if (shared++ == 0) first = JoinedLabel{std::string(name), std::move(parts), separator};
    }
    if (shared < kOfNames) continue;
    first->more = shared - 1;
    return first;
  }
  return std::nullopt;
}

}  // namespace strata::text
