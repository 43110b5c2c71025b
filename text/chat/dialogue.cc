#include "text/chat/dialogue.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "base/error.h"
#include "base/words.h"
#include "text/chat/template_coverage.h"
#include "text/json/json_value.h"
#include "text/template/values/python_text.h"

namespace strata::text {

using jinja::Kind;
using jinja::Value;

namespace {

// The number of non-blank lines if the first of them is complete JSON; otherwise 0.
std::size_t records_in(std::string_view text) {
  std::size_t lines = 0;
  for (const std::string_view line : split_list(text, '\n')) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (lines++ > 0) continue;
    try {
      (void)parse_json(line);
    } catch (const JsonFault&) {
      return 0;
    }
  }
  return lines;
}

Value literal_text(const char* text) {
  return Value(std::string(text));
}
bool has(const Value& record, std::string_view key) {
  const Value* found = record.is(Kind::dict) ? record.find(key) : nullptr;
  return found && !found->is(Kind::none);
}
// The record with one field added.
Value with(const Value& record, const char* key, Value value) {
  std::vector<std::pair<Value, Value>> fields = record.pairs();
  fields.emplace_back(literal_text(key), std::move(value));
  return Value::dict(std::move(fields));
}

// Turns a list of messages, a single message, or a prompt without an answer into a record of messages. Leaves anything
// else unchanged.
Value with_messages(Value given) {
  if (given.is(Kind::list)) return Value::dict({{literal_text("messages"), std::move(given)}});
  if (has(given, "role")) return Value::dict({{literal_text("messages"), Value::list({std::move(given)})}});
  if (!has(given, "prompt") || has(given, "completion") || has(given, "messages")) return given;
  const Value& prompt = *given.find("prompt");
  if (!prompt.is(Kind::text)) return with(given, "messages", prompt);
  return with(
      given, "messages",
      Value::list({Value::dict({{literal_text("role"), literal_text("user")}, {literal_text("content"), prompt}})}));
}

}  // namespace

void Dialogue::read(std::string_view json, const std::string& name) {
  Value given;
  try {
    given = parse_json(json);
  } catch (const JsonFault& fault) {
    if (const std::size_t lines = records_in(json); lines > 1)
      fail(Exit::usage,
           "{} holds {} records, one per line, but only one conversation is answered at a time: give one line", name,
           lines);
    fail(Exit::corrupt, "{}, offset {}: this is not JSON: {}", name, fault.at, fault.message);
  }
  given = with_messages(std::move(given));
  const bool unanswered = has(given, "instruction") && !has(given, "output");
  if (unanswered) given = with(given, "output", literal_text(""));
  if (!given.is(Kind::dict)) fail(Exit::corrupt, "{}: expected a list of messages, found {}", name, kind_text(given));
  try {
    conversation_ = conversation_of(given, format_of(given));
  } catch (const RecordFault& fault) {
    fail(Exit::corrupt, "{}: {}", name, fault.message);
  }
  if (unanswered) {
    const auto& turns = conversation_.messages.items();
    conversation_.messages = Value::list({turns.begin(), turns.end() - 1});
    conversation_.answers.pop_back();
    conversation_.trained.pop_back();
  }
  if (conversation_.answers.back())
    fail(Exit::usage,
         "{}: the last turn is the assistant's, so there is nothing to answer: leave that turn out, or add a turn of "
         "the user",
         name);
  look_at_contents(name);
}

void Dialogue::look_at_contents(const std::string& name) {
  UnreadFields roles;
  try {
    if (auto decoded = with_decoded_arguments(made_, conversation_)) conversation_ = std::move(*decoded);
    const std::string whole = made_.render(conversation_, conversation_.answers.size(), false).text;
    WrittenContents(made_).find_left_out(conversation_, whole, roles);
  } catch (const Error&) {  // prompt() reports what the template refuses
  } catch (const RecordFault& fault) {
    fail(Exit::corrupt, "{}: {}", name, fault.message);
  }
  if (!roles.empty())
    notes_.push_back(
        fmt::format("{}: roles whose turns {} does not write: {}", name, made_.name(), listed(roles, "turn")));
}

void Dialogue::add(std::string_view role, std::string content) {
  std::vector<Value> turns = conversation_.messages.items();
  turns.push_back(Value::dict({{Value(std::string("role")), Value(std::string(role))},
                               {Value(std::string("content")), Value(std::move(content))}}));
  conversation_.messages = Value::list(std::move(turns));
  conversation_.answers.push_back(role == "assistant");
  conversation_.trained.emplace_back();
}

std::vector<std::uint32_t> Dialogue::prompt() const {
  return tokenizer_->encode(made_.render(conversation_, conversation_.answers.size(), true).text);
}

std::vector<std::uint32_t> Dialogue::turn_ends() const {
  constexpr std::string_view kAnswer = "StrataAnswer";
  Dialogue answered = *this;
  // Templates refuse a conversation in which the assistant speaks first.
  if (conversation_.answers.empty()) answered.ask("StrataQuestion");
  answered.answered(std::string(kAnswer));
  std::string text;
  try {
    text = made_.render(answered.conversation_, answered.conversation_.answers.size(), false).text;
  } catch (const Error&) {  // if the template refuses the answer, no token ends it
    return {};
  }
  const std::size_t at = text.rfind(kAnswer);
  if (at == std::string::npos) return {};
  const std::string_view rest = jinja::strip(std::string_view(text).substr(at + kAnswer.size()), jinja::Side::left);
  const std::vector<std::uint32_t> ids = tokenizer_->encode(rest);
  if (ids.empty()) return {};
  const std::span<const std::uint32_t> first(ids.data(), 1);
  const bool special = tokenizer_->decode(first, true).empty() && !tokenizer_->decode(first, false).empty();
  if (!special && ids.size() > 1) return {};
  return {ids.front()};
}

}  // namespace strata::text
