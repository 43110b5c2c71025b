#include "text/chat/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quote.h"
#include "base/words.h"
#include "text/json/json_value.h"
#include "text/template/values/python_text.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;
using Fields = std::vector<std::pair<Value, Value>>;

constexpr std::array<std::pair<std::string_view, DataFormat>, 5> kFormats = {{{"text", DataFormat::text},
                                                                              {"chat", DataFormat::chat},
                                                                              {"alpaca", DataFormat::alpaca},
                                                                              {"sharegpt", DataFormat::sharegpt},
                                                                              {"completion", DataFormat::completion}}};

template <typename... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw RecordFault{fmt::format(format, std::forward<Args>(args)...)};
}

Value text_value(std::string_view text) {
  return Value(std::string(text));
}
// Finds a field that is present and not null.
const Value* find(const Value& record, std::string_view key) {
  const Value* found = record.find(key);
  return found && !found->is(Kind::none) ? found : nullptr;
}
std::string text_or_empty(const Value& record, std::string_view key) {
  const Value* found = find(record, key);
  if (!found) return {};
  if (!found->is(Kind::text)) wrong("expected a string in \"{}\", found {}", key, kind_text(*found));
  return found->text();
}

// The names of a record's fields, for messages.
std::string keys_of(const Value& record) {
  constexpr std::size_t kMost = 100;
  std::string keys;
  for (const auto& [key, value] : record.pairs())
    if (keys.size() < kMost) keys += (keys.empty() ? "" : ", ") + excerpt(key.to_text(), kMost);
  return keys.empty() ? "of an empty object" : keys;
}

Value turn(std::string_view role, std::string content) {
  return Value::dict({{text_value("role"), text_value(role)}, {text_value("content"), Value(std::move(content))}});
}

// Decodes a value that some data sets store as JSON in a text.
Value stored(const Value& value, std::string_view what) {
  if (!value.is(Kind::text) || value.text().empty()) return value;
  try {
    return exact_json(value.text());
  } catch (const JsonFault& fault) {
    wrong("expected a list in {}, found text that is not JSON ({})", what, fault.message);
  }
}

Value tools_of(const Value& record) {
  const Value* found = find(record, "tools");
  if (!found) return {};
  Value tools = stored(*found, "\"tools\"");
  if (tools.is(Kind::text)) return {};
  if (!tools.is(Kind::list)) wrong("expected a list in \"tools\", found {}", kind_text(tools));
  for (const Value& tool : tools.items())
    if (!tool.is(Kind::dict)) wrong("expected objects in \"tools\", found {}", kind_text(tool));
  return tools;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Copies reasoning to every name that templates read, whatever name it has, as transformers does.
Value with_reasoning(const Value& message) {
  const Value* thought = nullptr;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"})
    if (!thought) thought = find(message, key);
  if (!thought) return message;
  Fields fields = {{text_value("thinking"), *thought}};
  for (const auto& field : message.pairs()) fields.push_back(field);
  fields.emplace_back(text_value("reasoning_content"), *thought);
  return Value::dict(std::move(fields));
}

// Adds a turn. The template does not see fields that only say whether the turn is trained on. As in transformers, it
// does not see null fields either: OpenAI's turns with calls have no content, and tables write all fields of all turns.
void add(const Value& message, Conversation& out, std::vector<Value>& turns) {
  if (!message.is(Kind::dict)) wrong("expected an object for each turn, found {}", kind_text(message));
  const Value* role = find(message, "role");
  if (!role && find(message, "from"))
    wrong("turn {} has no \"role\" but a \"from\", as ShareGPT has it: rename \"messages\" to \"conversations\"",
          turns.size() + 1);
  if (role && !role->is(Kind::text))
    wrong("turn {}: expected a string in \"role\", found {}", turns.size() + 1, kind_text(*role));
  if (!role) wrong("turn {} has no \"role\", only the fields {}", turns.size() + 1, keys_of(message));
  out.answers.push_back(role->text() == "assistant");
  out.trained.push_back(trained(message, turns.size() + 1));
  Fields fields;
  for (const auto& [key, value] : message.pairs()) {
    if (value.is(Kind::none) || is_turn_mask(key.text())) continue;
    fields.emplace_back(key, key.text() == "tool_calls" ? stored(value, "\"tool_calls\"") : value);
    if (key.text() != "role" && key.text() != "content" && !is_empty_value(value))
      add_once(out.turn_fields, key.text());
  }
  turns.push_back(with_reasoning(Value::dict(std::move(fields))));
}

// Reads ShareGPT's function calls: one or a list of {"name": ..., "arguments": ...} as JSON in a text, which may begin
// with a thought.
Fields function_calls(std::string text, std::size_t turn) {
  constexpr std::string_view kThought = "<think>", kEnd = "</think>";
  Fields fields = {{text_value("role"), text_value("assistant")}, {text_value("content"), text_value("")}};
  if (const std::size_t end = text.find(kEnd); text.starts_with(kThought) && end != std::string::npos) {
    const std::string_view thought = std::string_view(text).substr(kThought.size(), end - kThought.size());
    fields.emplace_back(text_value("reasoning_content"), text_value(jinja::strip(thought, jinja::Side::both)));
    text.erase(0, end + kEnd.size());
  }
  Value calls;
  try {
    calls = exact_json(text);
  } catch (const JsonFault& fault) {
    wrong("turn {}: the function_call is not JSON ({})", turn, fault.message);
  }
  std::vector<Value> out;
  for (const Value& call : calls.is(Kind::list) ? calls.items() : std::vector{calls}) {
    if (!call.is(Kind::dict)) wrong("turn {}: expected an object in a function_call, found {}", turn, kind_text(call));
    out.push_back(Value::dict({{text_value("type"), text_value("function")}, {text_value("function"), call}}));
  }
  fields.emplace_back(text_value("tool_calls"), Value::list(std::move(out)));
  return fields;
}

void add_all(const Value& record, std::string_view key, Conversation& out, std::vector<Value>& turns) {
  const Value& messages = *find(record, key);
  if (!messages.is(Kind::list)) wrong("expected a list of turns in \"{}\", found {}", key, kind_text(messages));
  for (const Value& message : messages.items()) add(message, out, turns);
}

void add_sharegpt(const Value& record, Conversation& out, std::vector<Value>& turns) {
  // A role, and its names in ShareGPT's data sets.
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"user", "human user"},
      {"assistant", "gpt assistant chatgpt bing bard model"},
      {"system", "system"},
      {"tool", "tool observation function_response"}};
  if (std::string system = text_or_empty(record, "system"); !system.empty())
    add(turn("system", std::move(system)), out, turns);
  const Value& conversations = *find(record, "conversations");
  if (!conversations.is(Kind::list))
    wrong("expected a list of turns in \"conversations\", found {}", kind_text(conversations));
  for (const Value& message : conversations.items()) {
    if (!message.is(Kind::dict)) wrong("expected an object for each turn, found {}", kind_text(message));
    if (find(message, "role")) {  // the messages are in OpenAI's format, but under ShareGPT's key
      add(message, out, turns);
      continue;
    }
    if (!find(message, "from"))
      wrong(
          "turn {} has no \"from\", only the fields {}: expected {{\"from\": \"human\", \"value\": \"...\"}} and "
          "{{\"from\": \"gpt\", \"value\": \"...\"}}",
          turns.size() + 1, keys_of(message));
    const std::string from = text_or_empty(message, "from");
    Fields fields;
    if (from == "function_call") {
      fields = function_calls(text_or_empty(message, "value"), turns.size() + 1);
    } else {
      const auto* known = std::ranges::find_if(kRoles, [&](const auto& role) { return has_word(role.second, from); });
      if (known == std::end(kRoles))
        wrong("turn {} is from \"{}\": expected human, gpt, system, tool, observation or function_call",
              turns.size() + 1, from);
      fields = {{text_value("role"), text_value(known->first)},
                {text_value("content"), Value(text_or_empty(message, "value"))}};
    }
    for (const auto& [key, value] : message.pairs()) {
      if (is_turn_mask(key.text()))
        fields.emplace_back(key, value);
      else if (key.text() != "from" && key.text() != "value" && !is_empty_value(value))
        add_once(out.unread_turn_fields, key.text());
    }
    add(Value::dict(std::move(fields)), out, turns);
  }
}

void add_alpaca(const Value& record, Conversation& out, std::vector<Value>& turns) {
  if (std::string system = text_or_empty(record, "system"); !system.empty())
    add(turn("system", std::move(system)), out, turns);
  if (const Value* history = find(record, "history")) {
    if (!history->is(Kind::list)) wrong("expected a list in \"history\", found {}", kind_text(*history));
    for (const Value& pair : history->items()) {
      if (!pair.is(Kind::list) || pair.items().size() != 2 || !pair.items()[0].is(Kind::text) ||
          !pair.items()[1].is(Kind::text))
        wrong("expected pairs of two texts in \"history\"");
      add(turn("user", pair.items()[0].text()), out, turns);
      add(turn("assistant", pair.items()[1].text()), out, turns);
    }
  }
  std::string question = text_field(record, "instruction");
  if (const std::string input = text_or_empty(record, "input"); !input.empty()) question += "\n" + input;
  add(turn("user", std::move(question)), out, turns);
  add(turn("assistant", text_field(record, "output")), out, turns);
}

}  // namespace

std::string_view name_of(DataFormat format) {
  return std::find_if(kFormats.begin(), kFormats.end(), [&](const auto& known) { return known.second == format; })
      ->first;
}

std::optional<DataFormat> data_format(std::string_view name) {
  for (const auto& [known, format] : kFormats)
    if (known == name) return format;
  return std::nullopt;
}

namespace {

// The format whose fields are present, if there is exactly one.
std::optional<DataFormat> unambiguous_format(const Value& record) {
  const auto has = [&](std::string_view key) { return find(record, key) != nullptr; };
  std::vector<std::pair<std::string_view, DataFormat>> found;
  if (has("messages")) found.emplace_back("messages", DataFormat::chat);
  if (has("conversations")) found.emplace_back("conversations", DataFormat::sharegpt);
  if (has("prompt") && has("completion")) {
    const bool turns = find(record, "prompt")->is(Kind::list) || find(record, "completion")->is(Kind::list);
    found.emplace_back("prompt and completion", turns ? DataFormat::chat : DataFormat::completion);
  }
  if (has("instruction") && has("output")) found.emplace_back("instruction and output", DataFormat::alpaca);
  if (has("text")) found.emplace_back("text", DataFormat::text);
  if (found.size() > 1) wrong("both {} and {} are present: choose one with --format", found[0].first, found[1].first);
  return found.empty() ? std::nullopt : std::optional(found.front().second);
}

// The renaming of a field that would make a record fit a format; empty if there is none.
std::string other_names(const Value& record) {
  for (const auto& [key, value] : record.pairs()) {
    if (!value.is(Kind::list) || value.items().empty() || !value.items()[0].is(Kind::dict)) continue;
    if (find(value.items()[0], "role")) return fmt::format("rename \"{}\" to \"messages\"", key.to_text());
    if (find(value.items()[0], "from")) return fmt::format("rename \"{}\" to \"conversations\"", key.to_text());
  }
  // The text under the first of these names that the record has.
  const auto text_of = [&](std::initializer_list<std::string_view> names) {
    const auto* name = std::find_if(names.begin(), names.end(), [&](std::string_view one) {
      const Value* found = find(record, one);
      return found && found->is(Kind::text);
    });
    return name == names.end() ? std::string_view() : *name;
  };
  const std::string_view asked = text_of({"prompt", "instruction", "question", "query", "problem", "input"});
  const std::string_view said = text_of({"completion", "output", "response", "answer", "solution", "target"});
  if (asked.empty() || said.empty()) return {};
  std::string_view with = text_of({"context", "input"});
  if (with == asked) with = {};
  const std::string_view system = text_of({"system", "system_prompt", "system_message"});
  const bool alpaca = asked == "instruction" || !with.empty() || !system.empty();
  std::vector<std::string> out;
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (!from.empty() && from != to) out.push_back(fmt::format("\"{}\" to \"{}\"", from, to));
  };
  rename(asked, alpaca ? "instruction" : "prompt");
  rename(with, "input");
  rename(said, alpaca ? "output" : "completion");
  rename(system, "system");
  std::string all;
  for (std::size_t i = 0; i < out.size(); ++i) all += (i == 0 ? "" : i + 1 < out.size() ? ", " : " and ") + out[i];
  return "rename " + all;
}

}  // namespace

Value exact_json(std::string_view text) {
  std::vector<UnrepresentableNumber> odd;
  Value out = parse_json(text, RepeatedKeys::refused, &odd);
  for (const auto& [field, written, at] : odd)
    throw JsonFault{fmt::format("{} is {}", excerpt(written, 40),
                                written.ends_with('N') || written.ends_with('y')
                                    ? "not a JSON number: leave the record out"
                                    : "out of range (64-bit integers, doubles): make it a string"),
                    at};
  return out;
}

void refuse_formats_of_two(const Value& record) {
  (void)unambiguous_format(record);
}

DataFormat format_of(const Value& record, std::string_view to_do) {
  if (const auto found = unambiguous_format(record)) return *found;
  if (find(record, "chosen") && find(record, "rejected"))
    wrong(
        "\"chosen\" and \"rejected\" are preference data, which are not supported: to train on the chosen answers, "
        "leave \"rejected\" out and rename \"chosen\": to \"completion\" if it is an answer to \"prompt\", to "
        "\"output\" if "
        "it is one to \"instruction\", to \"messages\" if it is the conversation");
  if (find(record, "segments"))
    wrong(
        "\"segments\" (axolotl's parts of a text) are not supported: write \"prompt\" and \"completion\", or "
        "\"messages\" with \"train\": false in the turns that are not trained on");
  if (find(record, "input_ids"))
    wrong("\"input_ids\" are tokens already, but texts are expected: give the records that they were made from");
  const std::string other = other_names(record);
  if (!other.empty()) to_do = other;
  for (const char* key : {"text", "messages", "conversations", "prompt", "completion", "instruction", "output"})
    if (const Value* field = record.find(key); other.empty() && field && field->is(Kind::none))
      wrong("\"{}\" is null: leave such records out", key);
  wrong(
      "expected text, messages, conversations, prompt and completion, or instruction and output, found the fields {}{}",
      keys_of(record), to_do.empty() ? "" : fmt::format(": {}", to_do));
}

const std::string& text_field(const Value& record, std::string_view field) {
  const Value* found = record.find(field);
  if (!found) wrong("expected a string \"{}\" in each line, found none", field);
  if (!found->is(Kind::text)) wrong("expected a string \"{}\" in each line, found {}", field, kind_text(*found));
  return found->text();
}

Conversation conversation_of(const Value& record, DataFormat format) {
  Conversation out;
  std::vector<Value> turns;
  if (format == DataFormat::sharegpt) {
    if (!find(record, "conversations")) wrong("expected a list \"conversations\" in each line, found none");
    add_sharegpt(record, out, turns);
  } else if (format == DataFormat::alpaca) {
    add_alpaca(record, out, turns);
  } else if (find(record, "messages")) {
    add_all(record, "messages", out, turns);
  } else if (find(record, "prompt") && find(record, "completion")) {
    add_all(record, "prompt", out, turns);
    out.prompt = turns.size();
    add_all(record, "completion", out, turns);
  } else {
    wrong(
        "expected a list \"messages\" in each line, found the fields {}: tokenize files of different formats "
        "separately",
        keys_of(record));
  }
  if (turns.empty()) wrong("the conversation has no turn");
  out.messages = Value::list(std::move(turns));
  out.tools = tools_of(record);
  if (const Value* more = find(record, "chat_template_kwargs")) {
    if (!more->is(Kind::dict)) wrong("expected an object in \"chat_template_kwargs\", found {}", kind_text(*more));
    out.more = more->pairs();
  }
  if (const Value* documents = find(record, "documents")) out.more.emplace_back(text_value("documents"), *documents);
  return out;
}

Completion completion_of(const Value& record, DataFormat format) {
  if (format == DataFormat::completion) return {text_field(record, "prompt"), text_field(record, "completion")};
  if (find(record, "history")) wrong("\"history\" needs a chat template: give --chat-template FILE");
  const std::string input = text_or_empty(record, "input");
  std::string prompt = text_or_empty(record, "system");
  if (prompt.empty())
    prompt = input.empty()
                 ? "Below is an instruction that describes a task. Write a response that appropriately completes the "
                   "request."
                 : "Below is an instruction that describes a task, paired with an input that provides further context. "
                   "Write a response that appropriately completes the request.";
  prompt += "\n\n### Instruction:\n" + text_field(record, "instruction");
  if (!input.empty()) prompt += "\n\n### Input:\n" + input;
  return {prompt + "\n\n### Response:\n", text_field(record, "output")};
}

}  // namespace strata::text
