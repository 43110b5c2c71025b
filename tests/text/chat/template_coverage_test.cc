#include "text/chat/template_coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/scratch_folder.h"
#include "text/json/json_value.h"
#include "text/template/values/json_text.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class TemplateCoverageTest : public testing::Test {
 protected:
  ChatTemplate made(const std::string& source) {
    folder_.write("t.jinja", source);
    return *ChatTemplate::find("byte", folder_.path() / "t.jinja", *tokenizer_);
  }
  static Conversation chat(std::string_view json) { return conversation_of(parse_json(json), DataFormat::chat); }
  UnreadFields left_out(const std::string& source, std::string_view json) {
    UnreadFields out;
    const ChatTemplate written_by = made(source);
    WrittenContents contents(written_by);
    find(written_by, contents, json, out);
    return out;
  }
  static void find(const ChatTemplate& made, WrittenContents& contents, std::string_view json, UnreadFields& out) {
    const Conversation conversation = chat(json);
    contents.find_left_out(conversation, made.render(conversation, conversation.answers.size(), false).text, out);
  }
  std::string fault(const std::string& source, std::string_view json) {
    try {
      (void)left_out(source, json);
      return "no fault";
    } catch (const RecordFault& found) {
      return found.message;
    }
  }
  tests::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("byte");
};

// Like Qwen's template: it writes neither unknown roles nor a content that is not a text.
constexpr const char* kKnown =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role }}: "
    "{% if m.content is string %}{{ m.content }}{% endif %}\n{% endif %}{% endfor %}";

TEST_F(TemplateCoverageTest, FindsRolesThatTheTemplateOmits) {
  constexpr const char* kDeveloper =
      R"({"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "p"},
          {"role": "developer", "content": ""}, {"role": "assistant", "content": "q"}]})";
  EXPECT_THAT(left_out(kKnown, kDeveloper), ElementsAre(Pair("developer", 1u))) << "empty content counts as none";
  EXPECT_THAT(left_out("{% for m in messages %}{{ m.content }}{% endfor %}", kDeveloper), IsEmpty());
  // A template that refuses the replacement text has read it.
  EXPECT_THAT(left_out("{% for m in messages %}{% if m.content|length > 1 or m.content not in 'dpq' %}"
                       "{{ raise_exception('x') }}{% endif %}{% endfor %}",
                       kDeveloper),
              IsEmpty());
}

// Some templates write a system turn only if it is the first.
TEST_F(TemplateCoverageTest, DistinguishesPlacesInTheConversation) {
  const ChatTemplate first =
      made("{{ messages[0].content }}{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}");
  WrittenContents contents(first);
  UnreadFields out;
  for (int i = 0; i < 5; ++i)
    find(first, contents,
         R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "p"},
             {"role": "system", "content": "t"}, {"role": "assistant", "content": "q"}]})",
         out);
  EXPECT_THAT(out, ElementsAre(Pair("system", 5u)));
}

TEST_F(TemplateCoverageTest, RefusesListsThatTheTemplateDoesNotSupport) {
  constexpr const char* kParts =
      R"({"messages": [{"role": "user", "content": "p"},
          {"role": "assistant", "content": [{"type": "text", "text": "q"}]}]})";
  EXPECT_THAT(fault(kKnown, kParts),
              AllOf(HasSubstr("the content of turn 2 is a list of parts"),
                    HasSubstr("writes nothing: make it a string"), HasSubstr("--chat-template")));
  EXPECT_THAT(fault("{% for m in messages %}{{ m.content }}{% endfor %}", kParts), HasSubstr("writes Python's text"));
  EXPECT_EQ(fault("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                  "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}",
                  kParts),
            "no fault");
}

TEST_F(TemplateCoverageTest, ListsWithoutTextAreNotRefused) {
  EXPECT_THAT(left_out(kKnown, R"({"messages": [{"role": "user", "content": "p"},
                                   {"role": "assistant", "content": [{"type": "text", "text": ""}, ""]}]})"),
              IsEmpty());
  EXPECT_THAT(fault(kKnown, R"({"messages": [{"role": "user", "content": [{"type": "image"}]},
                                {"role": "assistant", "content": "q"}]})"),
              HasSubstr("writes nothing"));
}

TEST_F(TemplateCoverageTest, CountsListsInOmittedRoles) {
  EXPECT_THAT(left_out(kKnown, R"({"messages": [{"role": "developer", "content": [{"type": "text", "text": "d"}]},
                                   {"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}]})"),
              ElementsAre(Pair("developer", 1u)));
}

// A role is tested until the answer is known, and the counts stay correct.
TEST_F(TemplateCoverageTest, CountsOmittedRolesCorrectly) {
  const ChatTemplate known = made(kKnown);
  WrittenContents contents(known);
  UnreadFields out;
  for (int i = 0; i < 40; ++i)
    find(known, contents,
         R"({"messages": [{"role": "user", "content": "p"}, {"role": "developer", "content": "d"},
             {"role": "assistant", "content": "q"}]})",
         out);
  EXPECT_THAT(out, ElementsAre(Pair("developer", 40u)));
}

TEST_F(TemplateCoverageTest, ArgumentsAreNotEncodedTwice) {
  constexpr const char* kCall =
      R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function":
          {"name": "f", "arguments": "{\"city\": \"Paris\", \"days\": 2}"}}]}]})";
  const auto decoded = [&](const std::string& source) { return with_decoded_arguments(made(source), chat(kCall)); };
  const std::string each = "{% for m in messages %}{% for c in m.tool_calls %}";
  const auto out = decoded(each + "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  ASSERT_TRUE(out.has_value());
  EXPECT_THAT(jinja::json_text(out->messages, {}),
              HasSubstr(R"("function": {"name": "f", "arguments": {"city": "Paris", "days": 2}})"));
  EXPECT_TRUE(decoded(each + "{{ c | tojson }}{% endfor %}{% endfor %}").has_value());
  // DeepSeek's template writes the text, and Qwen3's checks its type.
  EXPECT_FALSE(decoded(each + "{{ c.function.arguments }}{% endfor %}{% endfor %}").has_value());
  EXPECT_FALSE(with_decoded_arguments(made(each + "{{ c | tojson }}{% endfor %}{% endfor %}"),
                                      chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f",
                                              "arguments": "not JSON"}]}]})"))
                   .has_value());
}

TEST_F(TemplateCoverageTest, ArgumentsAreNotEncodedTwiceByAnyTemplate) {
  const ChatTemplate whole =
      made("{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endfor %}");
  for (const char* arguments : {R"({\n  \"city\": \"Paris\"\n})", R"({\"\\u00e9\": 1})", "{}"})
    EXPECT_TRUE(with_decoded_arguments(whole, chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f",
                                              "arguments": ")" +
                                                   std::string(arguments) + "\"}]}]}"))
                    .has_value())
        << arguments;
}

// The templates are like those of DeepSeek and axolotl, which join texts, and of GLM and Qwen3.5, which read fields.
TEST_F(TemplateCoverageTest, ArgumentsHaveTheTypeThatTheTemplateExpects) {
  constexpr const char* kExample =
      R"({"messages": [{"role": "system", "content": "Call {\"name\": \"f\", \"arguments\": \"{\\\"city\\\": 1}\"}"},
          {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{\"city\": 2}"}]}]})";
  const std::string each = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}",
                    end = "{% endfor %}{% endfor %}";
  EXPECT_FALSE(with_decoded_arguments(made(each + "{{ 'f: ' + c.arguments }}" + end), chat(kExample)).has_value());
  EXPECT_FALSE(
      with_decoded_arguments(made(each + "{{ c.arguments if c.arguments is string else c.arguments | tojson }}" + end),
                             chat(kExample))
          .has_value());
  EXPECT_TRUE(with_decoded_arguments(made(each + "{{ c | tojson }}" + end), chat(kExample)).has_value());
  EXPECT_TRUE(with_decoded_arguments(
                  made(each + "{% for k, v in c.arguments.items() %}{{ k }}={{ v }}{% endfor %}" + end), chat(kExample))
                  .has_value());
}

// The object's values would differ from the text's.
TEST_F(TemplateCoverageTest, RefusesArgumentsThatAnObjectCannotHold) {
  const auto fault = [&](const char* writes, std::string_view arguments) {
    try {
      return with_decoded_arguments(
                 made("{% for m in messages %}{% for c in m.tool_calls %}{{ c" + std::string(writes) +
                      " }}{% endfor %}{% endfor %}"),
                 chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
                          "arguments": ")" +
                      std::string(arguments) + "\"}}]}]}"))
                     .has_value()
                 ? std::string("decoded")
                 : std::string("as given");
    } catch (const RecordFault& found) {
      return found.message;
    }
  };
  constexpr const char *kWhole = " | tojson", *kText = ".function.arguments";
  EXPECT_THAT(fault(kWhole, R"({\"id\": 123456789012345678901234})"),
              AllOf(HasSubstr("turn 1: "), HasSubstr("123456789012345678901234 is out of range")));
  EXPECT_THAT(fault(kWhole, R"({\"id\": [1E400]})"), HasSubstr("1E400 is out of range"));
  EXPECT_THAT(fault(kWhole, R"({\"id\": NaN})"), HasSubstr("NaN is not a JSON number"));
  EXPECT_THAT(fault(kWhole, R"({\"id\": 1, \"id\": 2})"), HasSubstr("\"id\" occurs twice"));
  EXPECT_EQ(fault(kWhole, R"({\"id\": 9223372036854775807})"), "decoded");
  EXPECT_EQ(fault(kText, R"({\"id\": 123456789012345678901234})"), "as given");
}

TEST_F(TemplateCoverageTest, FindsNestedNullArguments) {
  const auto has = [&](std::string_view arguments) {
    return has_null_arguments(chat(R"({"messages": [{"role": "assistant", "content": "c", "tool_calls": [{"function":
                                       {"name": "f", "arguments": )" +
                                   std::string(arguments) + "}}]}]}"));
  };
  EXPECT_TRUE(has(R"({"a": null})"));
  EXPECT_TRUE(has(R"({"a": [{"b": null}]})"));
  EXPECT_FALSE(has(R"({"a": [{"b": 0}]})"));
  EXPECT_FALSE(has(R"("null")"));
}

}  // namespace
}  // namespace strata::text
