#include "text/chat/written.h"

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

class WrittenTest : public testing::Test {
 protected:
  ChatTemplate made(const std::string& source) {
    folder_.write("t.jinja", source);
    return *ChatTemplate::find("byte", folder_.path() / "t.jinja", *tokenizer_);
  }
  static Conversation chat(std::string_view json) { return conversation_of(parse_json(json), DataFormat::chat); }
  UnreadFields left_out(const std::string& source, std::string_view json) {
    UnreadFields out;
    const ChatTemplate written_by = made(source);
    WrittenContents(written_by).find_left_out(chat(json), out);
    return out;
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

// As Qwen's: roles that it does not know are not written, and a content that is no text is not either.
constexpr const char* kKnown =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role }}: "
    "{% if m.content is string %}{{ m.content }}{% endif %}\n{% endif %}{% endfor %}";

TEST_F(WrittenTest, RolesThatTheTemplateDoesNotWriteAreFound) {
  constexpr const char* kDeveloper =
      R"({"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "p"},
          {"role": "developer", "content": ""}, {"role": "assistant", "content": "q"}]})";
  EXPECT_THAT(left_out(kKnown, kDeveloper), ElementsAre(Pair("developer", 1u))) << "an empty content is none";
  EXPECT_THAT(left_out("{% for m in messages %}{{ m.content }}{% endfor %}", kDeveloper), IsEmpty());
  // A template that refuses the other text has read it.
  EXPECT_THAT(left_out("{% for m in messages %}{% if m.content|length > 1 or m.content not in 'dpq' %}"
                       "{{ raise_exception('x') }}{% endif %}{% endfor %}",
                       kDeveloper),
              IsEmpty());
}

// Some templates write a system turn only if it is the first.
TEST_F(WrittenTest, PlacesDiffer) {
  const ChatTemplate first =
      made("{{ messages[0].content }}{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}");
  WrittenContents contents(first);
  UnreadFields out;
  for (int i = 0; i < 5; ++i)
    contents.find_left_out(chat(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "p"},
                                    {"role": "system", "content": "t"}, {"role": "assistant", "content": "q"}]})"),
                           out);
  EXPECT_THAT(out, ElementsAre(Pair("system", 5u)));
}

TEST_F(WrittenTest, ListsThatTheTemplateDoesNotTakeAreRefused) {
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

TEST_F(WrittenTest, ArgumentsAreNotJsonInJson) {
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
  // DeepSeek's template writes the text, and Qwen3's looks at what it is.
  EXPECT_FALSE(decoded(each + "{{ c.function.arguments }}{% endfor %}{% endfor %}").has_value());
  EXPECT_FALSE(with_decoded_arguments(made(each + "{{ c | tojson }}{% endfor %}{% endfor %}"),
                                      chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f",
                                              "arguments": "not JSON"}]}]})"))
                   .has_value());
}

TEST_F(WrittenTest, NullArgumentsAreFoundInside) {
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
