#include "text/chat/template_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "base/words.h"
#include "text/json/json_value.h"
#include "text/template/values/json_text.h"

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

// The arguments of a call: those of its function, or its own.
const Value* arguments_of(const Value& call) {
  if (!call.is(Kind::dict)) return nullptr;
  const Value* function = call.find("function");
  return function && function->is(Kind::dict) ? function->find("arguments") : call.find("arguments");
}

// The object that a call's arguments contain as JSON. fault: how the object differs from the text; may be empty.
struct DecodedArguments {
  Value object;
  std::string fault;
};

// nullopt if the arguments are not a text that contains an object.
std::optional<DecodedArguments> decoded(const Value& call) {
  const Value* arguments = arguments_of(call);
  if (!arguments || !arguments->is(Kind::text)) return std::nullopt;
  DecodedArguments out;
  try {
    std::vector<UnrepresentableNumber> odd;
    out.object = parse_json(arguments->text(), RepeatedKeys::last_counts, &odd);
    (void)exact_json(arguments->text());
  } catch (const JsonFault& fault) {  // any other text is left as it is
    out.fault = fault.message;
  }
  if (!out.object.is(Kind::dict)) return std::nullopt;
  return out;
}

// How a JSON text begins if it is encoded as JSON again: up to its second quotation mark, with escapes.
std::string beginning_in_json(const std::string& text) {
  const std::size_t first = text.find('"'), second = first == std::string::npos ? first : text.find('"', first + 1);
  if (second == std::string::npos) return jinja::json_text(Value(text), {});
  const std::string json = jinja::json_text(Value(text.substr(0, second + 1)), {});
  return json.substr(1, json.size() - 2);
}

std::size_t times_in(std::string_view text, std::string_view part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++out;
  return out;
}

// The text of the whole conversation; nullopt if the template refuses it.
std::optional<std::string> text_with(const ChatTemplate& made, const Conversation& conversation) {
  try {
    return made.render(conversation, conversation.answers.size(), false).text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The text of one part of a content; nullptr if the part is not text (an image, for example).
const std::string* text_of_part(const Value& part) {
  if (part.is(Kind::text)) return &part.text();
  const Value *type = part.is(Kind::dict) ? part.find("type") : nullptr,
              *text = part.is(Kind::dict) ? part.find("text") : nullptr;
  if (!text || !text->is(Kind::text) || (type && !(type->is(Kind::text) && type->text() == "text"))) return nullptr;
  return &text->text();
}

std::string text_of_parts(const Value& parts) {
  std::string out;
  for (const Value& part : parts.items())
    if (const std::string* text = text_of_part(part)) out += *text;
  return out;
}

bool has_no_text(const Value& content) {
  if (!content.is(Kind::list)) return is_empty_value(content);
  return std::all_of(content.items().begin(), content.items().end(), [](const Value& part) {
    const std::string* text = text_of_part(part);
    return text && text->empty();
  });
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

bool WrittenContents::writes(const Conversation& conversation, std::size_t turn, std::string_view whole,
                             const Value& other) const {
  try {
    return whole != made_.render(with_content(conversation, turn, other), conversation.answers.size(), false).text;
  } catch (const Error&) {  // a template that inspects contents reads them
    return true;
  }
}

bool WrittenContents::writes_parts(const Conversation& conversation, std::size_t turn, std::string_view whole) const {
  const Value& parts = *conversation.messages.items()[turn].find("content");
  const bool as_python = whole.find(parts.to_text()) != std::string_view::npos;
  if (!as_python && writes(conversation, turn, whole, Value::list({}))) return true;
  const std::string text = text_of_parts(parts);
  if (!as_python && !text.empty()) {
    const Conversation with_text = with_content(conversation, turn, Value(text));
    const auto written = text_with(made_, with_text);
    if (written && !writes(with_text, turn, *written, Value(std::string(kOtherText)))) return false;
  }
  throw RecordFault{
      fmt::format("the content of turn {} is a list of parts, of which {} writes {}: make it a string, or give a "
                  "template that takes parts with --chat-template FILE",
                  turn + 1, made_.name(), as_python ? "Python's text" : "nothing")};
}

void WrittenContents::find_left_out(const Conversation& conversation, std::string_view whole, UnreadFields& roles) {
  // A template may write some turns of a role and leave out others, so several turns are tested.
  constexpr int kSure = 3, kSureLeftOut = 16;
  const auto& messages = conversation.messages.items();
  for (std::size_t turn = 0; turn < messages.size(); ++turn) {
    const Value* content = messages[turn].find("content");
    if (!content || !(content->is(Kind::text) || content->is(Kind::list)) || has_no_text(*content)) continue;
    const std::string& role = messages[turn].find("role")->text();
    const int place = turn == 0 ? 0 : turn + 1 == messages.size() ? 2 : 1;
    const bool parts = content->is(Kind::list), calls = messages[turn].find("tool_calls") != nullptr;
    auto& [written, left_out] = asked_[{role, place, parts, calls}];
    if (written >= kSure) continue;
    const bool known = written == 0 && left_out >= kSureLeftOut;
    if (!known && (parts ? writes_parts(conversation, turn, whole)
                         : writes(conversation, turn, whole, Value(std::string(kOtherText))))) {
      ++written;
    } else {
      ++left_out;
      count_unread(roles, role);
    }
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
  std::vector<std::string> beginnings;
  std::string fault;
  std::vector<Value> messages = conversation.messages.items();
  for (std::size_t turn = 0; turn < messages.size(); ++turn) {
    const Value* calls = messages[turn].find("tool_calls");
    if (!calls || !calls->is(Kind::list)) continue;
    std::vector<Value> out = calls->items();
    for (Value& call : out) {
      const auto found = decoded(call);
      if (!found) continue;
      if (fault.empty() && !found->fault.empty())
        fault = fmt::format("turn {}: the JSON in the arguments of a call cannot be read as an object: {}", turn + 1,
                            found->fault);
      beginnings.push_back(beginning_in_json(arguments_of(call)->text()));
      call = with_arguments(call, found->object);
    }
    messages[turn] = with_field(messages[turn], "tool_calls", Value::list(std::move(out)));
  }
  if (beginnings.empty()) return std::nullopt;
  Conversation objects = with_messages(conversation, std::move(messages));
  const auto with_objects = text_with(made, objects);
  if (!with_objects) return std::nullopt;
  // The same beginning may occur elsewhere, as an example in a system turn.
  const auto as_given = text_with(made, conversation);
  if (as_given && std::none_of(beginnings.begin(), beginnings.end(), [&](const std::string& beginning) {
        return times_in(*with_objects, beginning) < times_in(*as_given, beginning);
      }))
    return std::nullopt;
  if (!fault.empty()) throw RecordFault{fault};
  return objects;
}

namespace {

using jinja::Kind;
using jinja::Value;

// Whether the value is a boolean, as JSON and tables write it.
bool is_flag(const Value& value) {
  if (value.is_number()) return value.real() == 0 || value.real() == 1;
  return value.is(Kind::text) && has_word("true false True False TRUE FALSE 0 1", value.text());
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
        !is_empty_value(value) && std::find(read.begin(), read.end(), field) == read.end())
      count_unread(out, field);
}

void refuse_preferences(const Value& record) {
  for (const auto& [key, value] : record.pairs()) {
    const std::string field = key.to_text();
    const bool of_pair =
        field == "chosen" || field == "rejected" || field.starts_with("chosen_") || field.starts_with("rejected_");
    if (of_pair && !is_empty_value(value))
      throw RecordFault{
          fmt::format("\"{}\" is preference data, which are not supported: to train on the chosen answers, put them "
                      "into the fields that are read, and leave \"chosen\" and \"rejected\" out (jq -c 'del(.chosen, "
                      ".rejected, .rejected_response)')",
                      field)};
    if ((field == "label" || field == "kto_tag") && is_flag(value))
      throw RecordFault{
          fmt::format("\"{0}\" says whether the answer is wanted (KTO), which is not supported: keep only the records "
                      "with a wanted answer, without the field (jq -c 'select(.{0} == true or .{0} == 1) | del(.{0})')",
                      field)};
  }
}

}  // namespace strata::text
