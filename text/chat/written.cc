#include "text/chat/written.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "text/json/json_value.h"

namespace strata::text {

namespace {

using jinja::Kind;
using jinja::Value;

Value with_field(const Value& from, std::string_view key, const Value& value) {
  auto fields = from.pairs();
  const auto field =
      std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.first.text() == key; });
  if (field == fields.end())
    fields.emplace_back(Value(std::string(key)), value);
  else
    field->second = value;
  return Value::dict(std::move(fields));
}

Conversation with_messages(const Conversation& conversation, std::vector<Value> messages) {
  Conversation out = conversation;
  out.messages = Value::list(std::move(messages));
  return out;
}

// The arguments of a call: of its function, or its own.
const Value* arguments_of(const Value& call) {
  if (!call.is(Kind::dict)) return nullptr;
  const Value* function = call.find("function");
  return function && function->is(Kind::dict) ? function->find("arguments") : call.find("arguments");
}

// The object that a call's arguments hold as JSON; nullopt if they are no such text.
std::optional<Value> decoded(const Value& call) {
  const Value* arguments = arguments_of(call);
  if (!arguments || !arguments->is(Kind::text)) return std::nullopt;
  try {
    Value value = parse_json(arguments->text());
    if (value.is(Kind::dict)) return value;
  } catch (const JsonFault&) {  // a text of another kind stays one
  }
  return std::nullopt;
}

// How a JSON text begins inside another: up to its second quotation mark, with both escaped.
std::string beginning_in_json(const std::string& text) {
  const std::size_t first = text.find('"'), second = text.find('"', first + 1);
  if (first == std::string::npos || second == std::string::npos) return "\"" + text + "\"";
  return text.substr(0, first) + "\\\"" + text.substr(first + 1, second - first - 1) + "\\\"";
}

Value with_arguments(const Value& call, const Value& arguments) {
  const Value* function = call.find("function");
  if (!function || !function->is(Kind::dict)) return with_field(call, "arguments", arguments);
  return with_field(call, "function", with_field(*function, "arguments", arguments));
}

}  // namespace

Conversation with_content(const Conversation& conversation, std::size_t turn, const Value& content) {
  std::vector<Value> messages = conversation.messages.items();
  messages.at(turn) = with_field(messages.at(turn), "content", content);
  return with_messages(conversation, std::move(messages));
}

bool WrittenContents::writes(const Conversation& conversation, std::size_t turn) {
  const std::size_t turns = conversation.answers.size();
  const bool parts = conversation.messages.items()[turn].find("content")->is(Kind::list);
  const Value other = parts ? Value::list({}) : Value(std::string(kOtherText));
  try {
    return made_.render(conversation, turns, false).text !=
           made_.render(with_content(conversation, turn, other), turns, false).text;
  } catch (const Error&) {  // a template that looks at texts reads them
    return true;
  }
}

void WrittenContents::require_parts_written(const Conversation& conversation, std::size_t turn) {
  const std::string parts = conversation.messages.items()[turn].find("content")->to_text();
  const std::string whole = made_.render(conversation, conversation.answers.size(), false).text;
  const bool as_python = whole.find(parts) != std::string::npos;
  if (as_python || !writes(conversation, turn))
    throw RecordFault{
        fmt::format("the content of turn {} is a list of parts, of which {} writes {}: make it a string, or give a "
                    "template that takes parts with --chat-template FILE",
                    turn + 1, made_.name(), as_python ? "Python's text" : "nothing")};
}

void WrittenContents::find_left_out(const Conversation& conversation, UnreadFields& roles) {
  constexpr int kSure = 3;  // a template may write some turns of a role and leave out others
  const auto& messages = conversation.messages.items();
  for (std::size_t turn = 0; turn < messages.size(); ++turn) {
    const Value* content = messages[turn].find("content");
    if (!content || says_nothing(*content)) continue;
    const std::string& role = messages[turn].find("role")->text();
    if (content->is(Kind::list)) require_parts_written(conversation, turn);
    if (!content->is(Kind::text)) continue;
    const int place = turn == 0 ? 0 : turn + 1 == messages.size() ? 2 : 1;
    int& written = written_[{role, place}];
    if (written >= kSure) continue;
    if (writes(conversation, turn))
      ++written;
    else
      count_unread(roles, role);
  }
}

bool has_null_arguments(const Conversation& conversation) {
  const auto has_null = [](const auto& self, const Value& value) -> bool {
    if (value.is(Kind::list))
      return std::any_of(value.items().begin(), value.items().end(), [&](const Value& one) { return self(self, one); });
    if (!value.is(Kind::dict)) return value.is(Kind::none);
    return std::any_of(value.pairs().begin(), value.pairs().end(),
                       [&](const auto& one) { return self(self, one.second); });
  };
  for (const Value& message : conversation.messages.items())
    if (const Value* calls = message.find("tool_calls"); calls && calls->is(Kind::list))
      for (const Value& call : calls->items())
        if (const Value* arguments = arguments_of(call); arguments && has_null(has_null, *arguments)) return true;
  return false;
}

std::optional<Conversation> with_decoded_arguments(const ChatTemplate& made, const Conversation& conversation) {
  std::optional<std::string> whole;
  bool doubled = false;
  std::vector<Value> messages = conversation.messages.items();
  for (Value& message : messages) {
    const Value* calls = message.find("tool_calls");
    if (!calls || !calls->is(Kind::list)) continue;
    std::vector<Value> out = calls->items();
    for (Value& call : out) {
      const auto value = decoded(call);
      if (!value) continue;
      if (!whole) whole = made.render(conversation, messages.size(), false).text;
      doubled = doubled || whole->find(beginning_in_json(arguments_of(call)->text())) != std::string::npos;
      call = with_arguments(call, *value);
    }
    message = with_field(message, "tool_calls", Value::list(std::move(out)));
  }
  if (!doubled) return std::nullopt;
  return with_messages(conversation, std::move(messages));
}

namespace {

using jinja::Kind;
using jinja::Value;

// A boolean, as JSON and tables write it.
bool is_flag(const Value& value) {
  if (value.is_number()) return value.real() == 0 || value.real() == 1;
  constexpr std::array<std::string_view, 8> kWords = {"true", "false", "True", "False", "TRUE", "FALSE", "0", "1"};
  return value.is(Kind::text) && std::find(kWords.begin(), kWords.end(), value.text()) != kWords.end();
}

}  // namespace

void count_unread(UnreadFields& out, std::string_view field) {
  const auto found = out.find(field);
  if (found != out.end())
    ++found->second;
  else
    out.emplace(field, 1);
}

std::string listed(const UnreadFields& fields, std::string_view counts) {
  constexpr std::size_t kShown = 12;
  std::vector<std::pair<std::string, std::uint64_t>> all(fields.begin(), fields.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
    out += fmt::format("{}{} ({})", i > 0 ? ", " : "", all[i].first, counted(all[i].second, counts));
  if (all.size() > kShown) out += fmt::format(" and {} more", all.size() - kShown);
  return out;
}

std::vector<std::string_view> fields_read(const Value& record, DataFormat format, bool templated,
                                          std::string_view field) {
  std::vector<std::string_view> out;
  switch (format) {
    case DataFormat::text:
      return {field};
    case DataFormat::chat:
      if (const Value* messages = record.find("messages"); messages && !messages->is(Kind::none))
        out = {"messages"};
      else
        out = {"prompt", "completion"};
      break;
    case DataFormat::sharegpt:
      out = {"conversations", "system"};
      break;
    case DataFormat::alpaca:
      out = {"instruction", "input", "output", "system", "history"};
      break;
    case DataFormat::completion:
      out = {"prompt", "completion"};
      break;
  }
  if (templated) out.insert(out.end(), {"tools", "chat_template_kwargs", "documents"});
  return out;
}

void find_unread(const Value& record, std::span<const std::string_view> read, UnreadFields& out) {
  for (const auto& [key, value] : record.pairs())
    if (const std::string field = key.to_text();
        !says_nothing(value) && std::find(read.begin(), read.end(), field) == read.end())
      count_unread(out, field);
}

void refuse_preferences(const Value& record) {
  for (const auto& [key, value] : record.pairs()) {
    const std::string field = key.to_text();
    const bool of_pair =
        field == "chosen" || field == "rejected" || field.starts_with("chosen_") || field.starts_with("rejected_");
    if (of_pair && !says_nothing(value))
      throw RecordFault{
          fmt::format("\"{}\" is preference data, which is not supported: to train on the chosen answers, see "
                      "that they are in the fields that are read, and leave \"chosen\" and \"rejected\" out (jq -c "
                      "'del(.chosen, .rejected, .rejected_response)')",
                      field)};
    if ((field == "label" || field == "kto_tag") && is_flag(value))
      throw RecordFault{
          fmt::format("\"{0}\" says whether the answer is wanted (KTO), which is not supported: keep the records whose "
                      "answer is, without the field (jq -c 'select(.{0} == true or .{0} == 1) | del(.{0})')",
                      field)};
  }
}

}  // namespace strata::text
