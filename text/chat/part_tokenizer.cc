#include "text/chat/part_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "text/chat/table.h"
#include "text/json/json_value.h"

namespace strata::text {

using jinja::Kind;
using jinja::Value;

namespace {

// Most templates accept only text as content, and do not name the turn in their own errors.
std::string non_text_content(const Conversation& conversation) {
  std::size_t turn = 0;
  for (const Value& message : conversation.messages.items()) {
    ++turn;
    const Value* content = message.find("content");
    if (!content) return fmt::format(" (turn {} has no \"content\")", turn);
    if (!content->is(Kind::text))
      return fmt::format(" (the content of turn {} is {}, which this template may not take: make it a string)", turn,
                         kind_text(*content));
  }
  return {};
}

bool is_empty(const simdjson::dom::element& value) {
  std::string_view text;
  simdjson::dom::array list;
  simdjson::dom::object object;
  if (value.get_string().get(text) == simdjson::SUCCESS) return text.empty();
  if (value.get_array().get(list) == simdjson::SUCCESS) return list.size() == 0;
  if (value.get_object().get(object) == simdjson::SUCCESS) return object.size() == 0;
  return value.is_null();
}

void add_roles(const Conversation& conversation, std::set<std::string>& out) {
  constexpr std::size_t kMost = 8;
  for (const Value& message : conversation.messages.items())
    if (out.size() < kMost) out.insert(message.find("role")->text());
}

}  // namespace

PartTokenizer::PartTokenizer(const Tokenizer& tokenizer, const RecordRules& rules)
    : tokenizer_(tokenizer),
      rules_(rules),
      workspace_(tokenizer.workspace()),
      places_(tokenizer, *workspace_),
      parser_(std::make_unique<simdjson::dom::parser>()) {
  if (rules.made) written_.emplace(*rules.made);
  // Numbers in these fields must be exact, because a template may write them.
  if (rules.format == DataFormat::text)
    read_ = {rules.field};
  else
    read_ = {"messages", "conversations", "prompt", "completion", "instruction",          "input",
             "output",   "history",       "system", "tools",      "chat_template_kwargs", "documents"};
  const auto plain = tokenizer.encode("a"), whole = tokenizer.encode("a", true);
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  before_.assign(whole.begin(), at);
  after_.assign(
      at + static_cast<std::ptrdiff_t>(std::min<std::size_t>(plain.size(), static_cast<std::size_t>(whole.end() - at))),
      whole.end());
}

PartTokenizer::~PartTokenizer() = default;

void PartTokenizer::run(const DocumentPart& part, PartTokens& out) {
  out.ids.clear();
  out.counts.clear();
  out.begins.clear();
  out.seen = {};
  switch (part.kind) {
    case InputKind::plain:
      if (part.begins) out.begins.push_back(0);
      return text(part.text, out);
    case InputKind::lines:
    case InputKind::comma_table:
    case InputKind::tab_table:
      return records(part, out);
  }
}

void PartTokenizer::text(std::string_view text, PartTokens& out) {
  tokenizer_.encode(text, rules_.add_special, *workspace_, out.ids);
}

void PartTokenizer::records(const DocumentPart& part, PartTokens& out) {
  const std::vector<std::string> names = header_names(part);
  const bool whole = part.kind != InputKind::lines || rules_.format != DataFormat::text;
  if (!names.empty() && rules_.format == DataFormat::text &&
      std::find(names.begin(), names.end(), rules_.field) == names.end())
    fail(Exit::usage, "{}: there is no field \"{}\" (--field); the fields are {}: {}", part.name, rules_.field,
         fmt::join(names, ", "), kHeaderNames);
  each_record(part, [&](const RecordLocation& place) {
    out.begins.push_back(out.ids.size());
    if (whole)
      record(value_of(place, names, read_), place, out);
    else
      text(field_of(place, out.seen.unread), out);
    return true;
  });
}

// Reads one field without making values of the others.
std::string_view PartTokenizer::field_of(const RecordLocation& place, UnreadFields& unread) {
  simdjson::dom::element root;
  simdjson::dom::object object;
  refuse_marks(place);
  if (parser_->parse(place.text.data(), place.text.size()).get(root) != simdjson::SUCCESS ||
      root.get_object().get(object) != simdjson::SUCCESS) {
    return slow_field_of(place, unread);
  }
  std::optional<simdjson::dom::element> value;
  names_.clear();
  for (const auto [key, field] : object) {
    names_.push_back(key);
    if (key == rules_.field) value = field;
  }
  std::sort(names_.begin(), names_.end());
  if (std::adjacent_find(names_.begin(), names_.end()) != names_.end())
    (void)value_of(place, {});  // throws, and names
                                // the column
  std::string_view text;
  if (!value || value->get_string().get(text) != simdjson::SUCCESS) return slow_field_of(place, unread);
  const auto has = [&](std::string_view name) { return std::binary_search(names_.begin(), names_.end(), name); };
  if (rules_.found && (has("messages") || has("conversations") || has("prompt") || has("instruction")))
    refuse_two_formats(value_of(place, {}), place);
  if (!rules_.field_given)
    for (const auto [key, field] : object)
      if (key != rules_.field && !is_empty(field)) count_unread(unread, key);
  return text;
}

// The slower way, for a line with numbers that are too large for simdjson, or with a field that is not text.
std::string_view PartTokenizer::slow_field_of(const RecordLocation& place, UnreadFields& unread) {
  record_ = value_of(place, {}, read_);
  const Value* value = record_.find(rules_.field);
  if (!value || !value->is(Kind::text))
    place.bad(fmt::format("expected a string \"{}\" in each line, found {}", rules_.field,
                          value ? kind_text(*value) : "none"));
  if (rules_.found) refuse_two_formats(record_, place);
  if (!rules_.field_given) find_unread(record_, std::array{std::string_view(rules_.field)}, unread);
  return value->text();
}

// Without this check, half of a record that also has the fields of a second format would be ignored.
void PartTokenizer::refuse_two_formats(const Value& record, const RecordLocation& place) {
  try {
    refuse_formats_of_two(record);
  } catch (const RecordFault& fault) {
    place.bad(fault.message);
  }
}

void PartTokenizer::record(const Value& record, const RecordLocation& place, PartTokens& out) {
  try {
    if (rules_.found) refuse_formats_of_two(record);
    if (rules_.format != DataFormat::text) refuse_preferences(record);
    if (!rules_.field_given)
      find_unread(record, fields_read(record, rules_.format, rules_.templated(), rules_.field), out.seen.unread);
    if (rules_.format == DataFormat::text) {
      text(text_field(record, rules_.field), out);
    } else if (rules_.templated()) {
      Conversation conversation = conversation_of(record, rules_.format);
      add_roles(conversation, out.seen.roles);
      const bool completed = rules_.completion_alone && conversation.prompt > 0;
      try {
        if (auto decoded = with_decoded_arguments(*rules_.made, conversation)) {
          conversation = std::move(*decoded);
          ++out.seen.decoded_calls;
        }
        if (has_null_arguments(conversation)) ++out.seen.null_arguments;
        const LabelledText document =
            labelled_text(*rules_.made, conversation, completed ? TrainOn::completion : rules_.train_on);
        out.seen.written_differently += document.written_differently;
        if (document.open_end) ++out.seen.open_ends;
        labelled(document, place, out);
        written_->find_left_out(conversation, document.text, out.seen.roles_left_out);
      } catch (const Error& error) {
        fail(error.code(), "{}{}", error.what(), non_text_content(conversation));
      }
      if (rules_.made->leaves_out_tools(conversation)) ++out.seen.tools_left_out;
      find_unread_in_turns(conversation, out.seen.unread_in_turns);
    } else {
      const Completion document = completion_of(record, rules_.format);
      LabelledText labels{document.prompt + document.answer, {}};
      const std::size_t begin = rules_.train_on == TrainOn::all ? 0 : document.prompt.size();
      if (begin < labels.text.size()) labels.labels.push_back({begin, labels.text.size()});
      labelled(labels, place, out);
    }
  } catch (const RecordFault& fault) {
    place.bad(fault.message);
  } catch (const Error& error) {
    if (error.code() != Exit::usage) throw;
    fail(Exit::corrupt, "{}, line {}: {}", place.part.name, place.line, error.what());
  }
}

// Finds the fields of turns that the template does not name. Tool calls have their own message.
void PartTokenizer::find_unread_in_turns(const Conversation& conversation, UnreadFields& out) {
  constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking", "reasoning"};
  const auto names = [&](std::string_view field) { return rules_.made->names(field); };
  for (const std::string& field : conversation.turn_fields) {
    if (field == "tool_calls") continue;
    auto known = named_.find(field);
    if (known == named_.end()) {
      const bool reasoning =
          std::find(kReasoningFields.begin(), kReasoningFields.end(), field) != kReasoningFields.end();
      known = named_
                  .emplace(field, reasoning ? std::any_of(kReasoningFields.begin(), kReasoningFields.end(), names)
                                            : names(field))
                  .first;
    }
    if (!known->second) count_unread(out, field);
  }
  for (const std::string& field : conversation.unread_turn_fields) count_unread(out, field);
}

void PartTokenizer::labelled(const LabelledText& document, const RecordLocation& place, PartTokens& out) {
  const bool around = rules_.add_special && !rules_.templated();
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> counts;
  tokenizer_.encode(document.text, false, *workspace_, ids);
  if (!places_.mark(document.text, ids, document.labels, counts))
    place.bad(
        fmt::format("the tokenizer {} changes this text, so its labels cannot be located: leave "
                    "the line out, or use --train-on all",
                    tokenizer_.name()));
  if (around) {
    const bool all = rules_.train_on == TrainOn::all;
    ids.insert(ids.begin(), before_.begin(), before_.end());
    counts.insert(counts.begin(), before_.size(), all ? 1 : 0);
    ids.insert(ids.end(), after_.begin(), after_.end());
    counts.insert(counts.end(), after_.size(), 1);
  }
  if (rules_.end && !rules_.templated()) {
    ids.push_back(*rules_.end);
    counts.push_back(1);
  }
  if (std::find(counts.begin(), counts.end(), 1) == counts.end()) ++out.seen.unlabelled;
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.counts.insert(out.counts.end(), counts.begin(), counts.end());
}

void RecordCounts::add(const RecordCounts& more) {
  unlabelled += more.unlabelled;
  tools_left_out += more.tools_left_out;
  decoded_calls += more.decoded_calls;
  null_arguments += more.null_arguments;
  written_differently += more.written_differently;
  open_ends += more.open_ends;
  for (const auto& [field, records] : more.unread) unread[field] += records;
  for (const auto& [field, records] : more.unread_in_turns) unread_in_turns[field] += records;
  for (const auto& [role, turns] : more.roles_left_out) roles_left_out[role] += turns;
  roles.insert(more.roles.begin(), more.roles.end());
}

std::vector<std::string> RecordCounts::notes(const std::string& made, std::uint64_t documents) const {
  std::vector<std::string> out;
  const auto some = [&](std::uint64_t n) {
    return fmt::format("{} of {} {}", n, counted(documents, "document"), for_count(n, "has", "have"));
  };
  if (!unread.empty()) out.push_back(fmt::format("fields that are not read: {}", listed(unread)));
  if (!unread_in_turns.empty())
    out.push_back(fmt::format("fields of turns that {} does not write: {}", made, listed(unread_in_turns)));
  if (!roles_left_out.empty())
    out.push_back(fmt::format("roles whose turns {} does not write: {}", made, listed(roles_left_out, "turn")));
  if (tools_left_out > 0)
    out.push_back(
        fmt::format("{} tools or tool calls, which {} does not write, so an answer may be empty: give a template that "
                    "does with --chat-template",
                    some(tools_left_out), made));
  if (decoded_calls > 0)
    out.push_back(
        fmt::format("{} tool calls whose arguments are JSON in a text, which {} would refuse or encode as JSON again: "
                    "they are written as the objects in these texts",
                    some(decoded_calls), made));
  if (null_arguments > 0)
    out.push_back(fmt::format(
        "{} null arguments in tool calls, which the template writes: if the file was a table, where each call has "
        "the arguments of every tool, remove them with jq -c 'del(.. | nulls)'",
        some(null_arguments)));
  if (open_ends > 0)
    out.push_back(
        fmt::format("{} a last answer after which {} writes nothing, so a model does not learn from it to end its "
                    "answers: give a template that writes a token there with --chat-template",
                    some(open_ends), made));
  if (written_differently > 0)
    out.push_back(
        fmt::format("{} {} trained on as {} writes {} before other turns, which differs from how it writes a last "
                    "turn (by thoughts, for example): --train-on last leaves {} out",
                    counted(written_differently, "answer"), for_count(written_differently, "is", "are"), made,
                    for_count(written_differently, "it", "them"), for_count(written_differently, "it", "them")));
  return out;
}

}  // namespace strata::text
