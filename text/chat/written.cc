#include "text/chat/written.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
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

}  // namespace strata::text
