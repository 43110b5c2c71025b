#include "text/classes/class_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/chat/part_records.h"
#include "text/chat/record.h"

namespace strata::text {
namespace {

constexpr std::array<std::pair<std::string_view, Truncation>, 4> kTruncationNames = {
    {{"longest_first", Truncation::longest_first},
     {"only_first", Truncation::only_first},
     {"only_second", Truncation::only_second},
     {"do_not_truncate", Truncation::none}}};

}  // namespace

void ClassTokens::clear() {
  ids.clear();
  types.clear();
  begins.clear();
  labels.clear();
  name.clear();
  words.clear();
  cut = 0;
}

ClassTokenizer::ClassTokenizer(const Tokenizer& tokenizer, const ClassRules& rules)
    : tokenizer_(tokenizer), rules_(rules), workspace_(tokenizer.workspace()), pair_(tokenizer.text_template().pair) {
  const TextTemplate& made = tokenizer.text_template();
  // Without a template, the second text follows the first with its own token types, as in transformers.
  if (pair_.empty() && TextTemplate::added(made.single) == 0)
    pair_ = {{TextTemplate::Kind::first}, {TextTemplate::Kind::second, 0, 1}};
  if (rules.record.pair && pair_.empty())
    fail(Exit::usage, "--pair {}: the tokenizer {} has no template for two texts", *rules.record.pair,
         tokenizer.name());
  const std::size_t added = TextTemplate::added(rules.record.pair ? pair_ : made.single);
  if (rules.max_length && *rules.max_length <= added)
    fail(Exit::usage,
         "--max-length {} leaves no room for the text, because the tokenizer {} adds {} tokens of its own: raise it",
         *rules.max_length, tokenizer.name(), added);
}

void ClassTokenizer::run(const DocumentPart& part, ClassTokens& out) {
  out.clear();
  out.name = part.name;
  const std::vector<std::string> names = header_names(part);
  LabelRules rules = rules_.record;
  rules.of_table = !names.empty();
  std::vector<std::string> read = rules.labels;
  read.push_back(rules.text);
  if (rules.pair) read.push_back(*rules.pair);
  each_record(part, [&](const RecordLocation& place) {
    try {
      const jinja::Value record = value_of(place, names, read);
      add(class_record(record, rules), out);
      out.labels.back().line = place.line;
    } catch (const RecordFault& fault) {
      place.bad(fault.message, fault.code);
    }
    return true;
  });
}

void ClassTokenizer::encode_words(const ClassRecord& record, std::vector<std::optional<LabelValue>>& labels) {
  // Encode each word as a separate text, so that the tokenizer's add_prefix_space decides whether a space precedes it.
  for (std::size_t i = 0; i < record.words.size(); ++i) {
    const std::size_t begin = first_.size();
    tokenizer_.encode(record.words[i], false, *workspace_, first_);
    labels.resize(first_.size());
    if (first_.size() == begin) continue;
    // Without labels, the number of each word marks its first token.
    labels[begin] = record.labels.values.empty() ? LabelValue(static_cast<std::int64_t>(i)) : record.labels.values[i];
  }
}

void ClassTokenizer::cut(std::vector<std::uint32_t>& ids, std::size_t length) const {
  const auto excess = static_cast<std::ptrdiff_t>(ids.size() - length);
  if (tokenizer_.text_template().truncates_left)
    ids.erase(ids.begin(), ids.begin() + excess);
  else
    ids.resize(length);
}

void ClassTokenizer::add(const ClassRecord& record, ClassTokens& out) {
  using Kind = TextTemplate::Kind;
  const TextTemplate& made = tokenizer_.text_template();
  const auto& pieces = record.has_pair ? pair_ : made.single;
  first_.clear();
  second_.clear();
  DocumentLabels labels = record.labels;
  std::vector<std::optional<LabelValue>> of_tokens;
  if (record.has_words)
    encode_words(record, of_tokens);
  else
    tokenizer_.encode(record.text, false, *workspace_, first_);
  if (record.has_pair) tokenizer_.encode(record.pair, false, *workspace_, second_);
  if (first_.empty() && second_.empty()) {
    const bool template_alone = TextTemplate::added(pieces) > 0;
    if (!rules_.takes_empty || !template_alone)
      throw RecordFault{fmt::format("the text has no tokens{}: leave the record out",
                                    rules_.takes_empty ? ", and the tokenizer puts none around it" : "")};
  }
  if (rules_.max_length) {
    const std::size_t most = *rules_.max_length - TextTemplate::added(pieces);
    const TextLengths lengths{first_.size(), second_.size()};
    const auto kept = truncated(lengths, most, rules_.truncation);
    if (!kept)
      throw RecordFault{fmt::format(
          "the text has {} tokens with those of the template, but --max-length is {}, and {}",
          lengths.sum() + TextTemplate::added(pieces), *rules_.max_length,
          rules_.truncation == Truncation::none
              ? std::string("--truncation do_not_truncate cuts nothing")
              : fmt::format("--truncation {} cannot cut enough: use longest_first", name_of(rules_.truncation)))};
    if (kept->sum() < lengths.sum()) ++out.cut;
    if (made.truncates_left && of_tokens.size() > kept->first)
      of_tokens.erase(of_tokens.begin(), of_tokens.end() - static_cast<std::ptrdiff_t>(kept->first));
    cut(first_, kept->first);
    cut(second_, kept->second);
  }
  out.begins.push_back(out.ids.size());
  if (record.has_words) labels.values.clear();
  for (const auto& piece : pieces) {
    const auto* ids = piece.kind == Kind::first ? &first_ : &second_;
    if (piece.kind == Kind::token)
      out.ids.push_back(piece.id);
    else
      out.ids.insert(out.ids.end(), ids->begin(), ids->end());
    out.types.resize(out.ids.size(), static_cast<std::uint8_t>(piece.type));
    if (!record.has_words) continue;
    if (piece.kind == Kind::first)
      labels.values.insert(labels.values.end(), of_tokens.begin(),
                           of_tokens.begin() + static_cast<std::ptrdiff_t>(first_.size()));
    labels.values.resize(out.ids.size() - out.begins.back());
  }
  out.labels.push_back(std::move(labels));
  out.words.push_back(record.has_words ? record.words.size() : 0);
}

std::optional<Truncation> truncation(std::string_view name) {
  for (const auto& [known, value] : kTruncationNames)
    if (known == name) return value;
  return std::nullopt;
}

std::string_view name_of(Truncation truncation) {
  return std::find_if(kTruncationNames.begin(), kTruncationNames.end(),
                      [&](const auto& known) { return known.second == truncation; })
      ->first;
}

void require_possible(Truncation truncation, bool pairs) {
  if (!pairs && truncation == Truncation::only_second)
    fail(Exit::usage, "--truncation only_second is for pairs: give --pair, or use longest_first");
}

std::optional<TextLengths> truncated(const TextLengths& lengths, std::size_t most, Truncation truncation) {
  if (lengths.sum() <= most) return lengths;
  const std::size_t excess = lengths.sum() - most;
  switch (truncation) {
    case Truncation::only_first:
      if (lengths.first <= excess) return std::nullopt;
      return TextLengths{lengths.first - excess, lengths.second};
    case Truncation::only_second:
      if (lengths.second <= excess) return std::nullopt;
      return TextLengths{lengths.first, lengths.second - excess};
    case Truncation::none:
      return std::nullopt;
    case Truncation::longest_first:
      break;
  }
  const bool second_is_short = lengths.second < lengths.first;
  std::size_t shorter = std::min(lengths.first, lengths.second);
  std::size_t longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  return second_is_short ? TextLengths{longer, shorter} : TextLengths{shorter, longer};
}

}  // namespace strata::text
