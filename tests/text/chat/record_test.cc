#include "text/chat/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "text/json/json_value.h"
#include "text/template/values/json_text.h"

namespace strata::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataFormat found(std::string_view json) {
  return format_of(parse_json(json));
}
Conversation conversation(std::string_view json, DataFormat format = DataFormat::chat) {
  return conversation_of(parse_json(json), format);
}
std::string turns(const Conversation& chat) {
  return jinja::json_text(chat.messages, {});
}
template <typename Work>
std::string fault(Work&& work) {
  try {
    (void)work();
  } catch (const RecordFault& found) {
    return found.message;
  }
  return "no fault";
}

TEST(RecordTest, FieldsDetermineTheFormat) {
  EXPECT_EQ(found(R"({"text": "a", "id": 1})"), DataFormat::text);
  EXPECT_EQ(found(R"({"messages": [], "text": null})"), DataFormat::chat);
  EXPECT_EQ(found(R"({"conversations": []})"), DataFormat::sharegpt);
  EXPECT_EQ(found(R"({"instruction": "a", "input": "", "output": "b"})"), DataFormat::alpaca);
  EXPECT_EQ(found(R"({"prompt": "a", "completion": "b"})"), DataFormat::completion);
  EXPECT_EQ(found(R"({"prompt": [], "completion": []})"), DataFormat::chat);
  EXPECT_THAT(fault([] { return found(R"({"messages": [], "text": "a"})"); }),
              testing::AllOf(HasSubstr("both messages and text"), HasSubstr("--format")));
  EXPECT_THAT(fault([] { return found(R"({"body": "x", "id": 1})"); }),
              testing::AllOf(HasSubstr("body, id"), testing::Not(HasSubstr("rename"))));
  EXPECT_THAT(fault([] { return found(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"); }),
              HasSubstr("\"chosen\" and \"rejected\" are preference data"));
  for (const auto format :
       {DataFormat::text, DataFormat::chat, DataFormat::alpaca, DataFormat::sharegpt, DataFormat::completion})
    EXPECT_EQ(data_format(name_of(format)), format);
}

TEST(RecordTest, AdvisesRenamingOtherFields) {
  EXPECT_THAT(fault([] { return found(R"({"instruction": "a", "response": "b"})"); }),
              HasSubstr(R"(rename "response" to "output")"));
  EXPECT_THAT(fault([] { return found(R"({"question": "a", "answer": "b", "id": 1})"); }),
              HasSubstr(R"(rename "question" to "prompt" and "answer" to "completion")"));
  // The advice names the other texts too. Otherwise one would be lost.
  EXPECT_THAT(fault([] { return found(R"({"instruction": "a", "context": "", "response": "b", "category": "c"})"); }),
              HasSubstr(R"(rename "context" to "input" and "response" to "output")"));
  EXPECT_THAT(
      fault([] { return found(R"({"id": "1", "system_prompt": "", "question": "a", "response": "b"})"); }),
      HasSubstr(R"(rename "question" to "instruction", "response" to "output" and "system_prompt" to "system")"));
  EXPECT_THAT(fault([] { return found(R"({"prompt": "a", "system": "s", "answer": "b"})"); }),
              HasSubstr(R"(rename "prompt" to "instruction" and "answer" to "output")"));
  EXPECT_THAT(fault([] { return found(R"({"instruction": "a", "input": "i", "response": "b"})"); }),
              testing::EndsWith(R"(: rename "response" to "output")"));
  EXPECT_THAT(fault([] { return found(R"({"prompt": "a", "response": "b"})"); }),
              HasSubstr(R"(rename "response" to "completion")"));
  EXPECT_THAT(fault([] { return found(R"({"input": "a", "completion": "b"})"); }),
              HasSubstr(R"(rename "input" to "prompt")"));
  EXPECT_THAT(fault([] { return found(R"({"message": [{"role": "user", "content": "a"}]})"); }),
              HasSubstr(R"(rename "message" to "messages")"));
  EXPECT_THAT(fault([] { return found(R"({"dialog": [{"from": "human", "value": "a"}]})"); }),
              HasSubstr(R"(rename "dialog" to "conversations")"));
  EXPECT_THAT(fault([] { return conversation(R"({"messages": [{"from": "human", "value": "a"}]})"); }),
              testing::AllOf(HasSubstr("turn 1"), HasSubstr(R"(rename "messages" to "conversations")")));
  EXPECT_THAT(fault([] { return conversation(R"({"messages": [{"speaker": "a", "text": "b"}]})"); }),
              HasSubstr("turn 1 has no \"role\", only the fields speaker, text"));
}

TEST(RecordTest, ReportsANullField) {
  EXPECT_THAT(fault([] { return found(R"({"text": null})"); }), HasSubstr("\"text\" is null: leave such records out"));
  EXPECT_THAT(fault([] { return found(R"({"prompt": "a", "completion": null})"); }),
              HasSubstr("\"completion\" is null"));
  EXPECT_THAT(fault([] { return found(R"({"prompt": "a", "completion": null, "answer": "b"})"); }),
              HasSubstr(R"(rename "answer" to "completion")"));
}

// As in transformers, this applies to every turn and only to its own fields.
TEST(RecordTest, NullFieldsOfATurnAreOmitted) {
  EXPECT_EQ(
      turns(conversation(
          R"({"messages": [{"role": "user", "content": "q", "tool_calls": null, "name": null}, {"role": "assistant",
                    "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": null}}}]}]})")),
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", )"
      R"("arguments": {"a": null}}}]}])");
  EXPECT_EQ(turns(conversation(R"({"conversations": [{"role": "user", "content": "q", "tool_calls": null}]})",
                               DataFormat::sharegpt)),
            R"([{"role": "user", "content": "q"}])");
}

TEST(RecordTest, MessagesKeepTheirFieldsExceptTrainingMarks) {
  const auto chat = conversation(
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1}],
          "weight": 0}, {"role": "assistant", "content": "a", "train": true, "reasoning": "r"}], "tools": "[{\"name\": 1}]",
          "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(turns(chat),
            R"([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"id": 1}]}, )"
            R"({"thinking": "r", "role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}])");
  EXPECT_THAT(chat.answers, ElementsAre(false, true, true));
  EXPECT_THAT(chat.trained, ElementsAre(std::nullopt, std::optional(false), std::optional(true)));
  EXPECT_EQ(jinja::json_text(chat.tools, {}), R"([{"name": 1}])");
  ASSERT_EQ(chat.more.size(), 1u);
  EXPECT_EQ(chat.more[0].first.text(), "enable_thinking");
  const auto prompted = conversation(
      R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})");
  EXPECT_EQ(prompted.prompt, 1u);
  EXPECT_EQ(prompted.answers.size(), 2u);
}

TEST(RecordTest, ShareGptAndAlpacaBecomeMessages) {
  const auto sharegpt = conversation(
      R"({"system": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value":
          "{\"name\": \"f\", \"arguments\": {}}"}, {"from": "observation", "value": "o"}, {"from": "gpt", "value": "a",
          "train": false}]})",
      DataFormat::sharegpt);
  EXPECT_EQ(
      turns(sharegpt),
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "", )"
      R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}, )"
      R"({"role": "tool", "content": "o"}, {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(sharegpt.trained.back(), std::optional(false));
  const auto alpaca =
      conversation(R"({"instruction": "i", "input": "n", "output": "o", "system": "s", "history": [["p", "r"]]})",
                   DataFormat::alpaca);
  EXPECT_EQ(turns(alpaca), R"([{"role": "system", "content": "s"}, {"role": "user", "content": "p"}, )"
                           R"({"role": "assistant", "content": "r"}, {"role": "user", "content": "i\nn"}, )"
                           R"({"role": "assistant", "content": "o"}])");
}

// LLaMA-Factory allows a list of calls, after a thought.
TEST(RecordTest, AFunctionCallMayBeAListAfterAThought) {
  const auto calls = [](const std::string& value) {
    return turns(conversation(R"({"conversations": [{"from": "function_call", "value": )" + value + "}]}",
                              DataFormat::sharegpt));
  };
  EXPECT_EQ(calls(R"("<think>\nhm\n</think>\n[{\"name\": \"f\"}, {\"name\": \"g\"}]")"),
            R"([{"thinking": "hm", "role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": )"
            R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]}])");
  EXPECT_THAT(fault([&] { return calls(R"("[1]")"); }), HasSubstr("expected an object in a function_call"));
  EXPECT_THAT(fault([&] { return calls(R"("{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}")"); }),
              HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(fault([&] { return calls(R"("{\"name\": \"f\", \"arguments\": {\"a\": 1e400}}")"); }),
              HasSubstr("1e400 is out of range"));
  EXPECT_THAT(fault([&] { return calls("\"f = 1\""); }), HasSubstr("turn 1: the function_call is not JSON"));
}

TEST(RecordTest, CallsAndToolsMayBeStrings) {
  const auto chat = conversation(
      R"({"messages": [{"role": "assistant", "tool_calls": "[{\"name\": \"f\"}]"}], "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(turns(chat), R"([{"role": "assistant", "tool_calls": [{"name": "f"}]}])");
  EXPECT_EQ(jinja::json_text(chat.tools, {}), R"([{"name": "f"}])");
}

TEST(RecordTest, FormatsOfOtherTrainersGiveAdvice) {
  EXPECT_THAT(fault([] { return found(R"({"segments": [{"label": true, "text": "a"}]})"); }),
              testing::AllOf(HasSubstr("axolotl's parts of a text"), HasSubstr("\"train\": false")));
  EXPECT_THAT(fault([] { return found(R"({"input_ids": [1], "labels": [1]})"); }), HasSubstr("are tokens already"));
  EXPECT_THAT(
      fault([] {
        return conversation(R"({"conversations": [{"human": "p", "assistant": "q"}]})", DataFormat::sharegpt);
      }),
      testing::AllOf(HasSubstr("turn 1 has no \"from\", only the fields human, assistant"), HasSubstr("\"gpt\"")));
}

TEST(RecordTest, AlpacaWithoutATemplateHasItsOwnPrompt) {
  const auto with =
      completion_of(parse_json(R"({"instruction": "i", "input": "n", "output": "o"})"), DataFormat::alpaca);
  EXPECT_EQ(
      with.prompt,
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n### Instruction:\ni\n\n### Input:\nn\n\n### "
      "Response:\n");
  EXPECT_EQ(with.answer, "o");
  const auto without = completion_of(parse_json(R"({"instruction": "i", "output": "o"})"), DataFormat::alpaca);
  EXPECT_EQ(without.prompt,
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\ni\n\n### Response:\n");
  const auto system =
      completion_of(parse_json(R"({"instruction": "i", "output": "o", "system": "s"})"), DataFormat::alpaca);
  EXPECT_EQ(system.prompt, "s\n\n### Instruction:\ni\n\n### Response:\n");
}

TEST(RecordTest, NamesMistakes) {
  const auto chat = [](std::string_view json) { return fault([&] { return conversation(json); }); };
  EXPECT_THAT(chat(R"({"messages": "a"})"), HasSubstr("expected a list of turns"));
  EXPECT_THAT(chat(R"({"messages": []})"), HasSubstr("no turn"));
  EXPECT_THAT(chat(R"({"messages": [1]})"), HasSubstr("expected an object for each turn"));
  EXPECT_THAT(chat(R"({"messages": [{"role": "user"}, {"content": "x"}]})"), HasSubstr("turn 2 has no \"role\""));
  EXPECT_THAT(chat(R"({"messages": [{"role": 1, "content": "x"}]})"),
              HasSubstr("turn 1: expected a string in \"role\", found an integer"));
  EXPECT_THAT(chat(R"({"messages": [{"role": "user"}], "tools": "[1"})"), HasSubstr("text that is not JSON"));
  EXPECT_THAT(chat(R"({"messages": [{"role": "user"}], "tools": {}})"), HasSubstr("a list in \"tools\""));
  EXPECT_THAT(chat(R"({"text": "a"})"), HasSubstr("\"messages\""));
  EXPECT_THAT(
      fault([] { return conversation(R"({"conversations": [{"from": "bob", "value": "x"}]})", DataFormat::sharegpt); }),
      HasSubstr("turn 1 is from \"bob\""));
  EXPECT_THAT(fault([] { return completion_of(parse_json(R"({"prompt": 1})"), DataFormat::completion); }),
              HasSubstr("string \"prompt\""));
}

}  // namespace
}  // namespace strata::text
