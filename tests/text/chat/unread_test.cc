#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/chat/template_coverage.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string unread(std::string_view json, DataFormat format, bool templated = true) {
  UnreadFields out;
  const auto record = parse_json(json);
  find_unread(record, fields_read(record, format, templated, "text"), out);
  return listed(out);
}
std::string preferences(std::string_view json) {
  try {
    refuse_preferences(parse_json(json));
  } catch (const RecordFault& found) {
    return found.message;
  }
  return "";
}

TEST(UnreadTest, KnowsTheFieldsOfEachFormat) {
  EXPECT_EQ(unread(R"({"messages": [], "tools": [{}], "documents": [{}], "chat_template_kwargs": {}, "system": "s",
                       "prompt": "p", "images": ["a.png"], "functions": [{}]})",
                   DataFormat::chat),
            "functions (1 record), images (1 record), prompt (1 record), system (1 record)");
  EXPECT_EQ(unread(R"({"prompt": [{}], "completion": [{}], "id": 1})", DataFormat::chat), "id (1 record)");
  EXPECT_EQ(unread(R"({"conversations": [{}], "system": "s", "system_prompt": "p"})", DataFormat::sharegpt),
            "system_prompt (1 record)");
  EXPECT_EQ(
      unread(R"({"instruction": "i", "input": "n", "output": "o", "system": "s", "context": "c"})", DataFormat::alpaca),
      "context (1 record)");
  EXPECT_EQ(unread(R"({"instruction": "i", "output": "o", "tools": [{}]})", DataFormat::alpaca, false),
            "tools (1 record)");
  EXPECT_EQ(unread(R"({"prompt": "p", "completion": "c", "system": "s"})", DataFormat::completion, false),
            "system (1 record)");
  EXPECT_EQ(unread(R"({"text": "p", "url": "u"})", DataFormat::text, false), "url (1 record)");
}

TEST(UnreadTest, IgnoresEmptyFields) {
  EXPECT_EQ(unread(R"({"text": "p", "a": null, "b": "", "c": [], "d": {}})", DataFormat::text, false), "");
  EXPECT_EQ(unread(R"({"text": "p", "a": 0, "b": false})", DataFormat::text, false), "a (1 record), b (1 record)");
}

TEST(UnreadTest, NamesTheMostFrequentFields) {
  EXPECT_EQ(listed({{"a", 1}, {"b", 3}}), "b (3 records), a (1 record)");
  UnreadFields many;
  for (char c = 'a'; c <= 'z'; ++c) count_unread(many, std::string(1, c));
  count_unread(many, "z");
  EXPECT_THAT(listed(many), AllOf(testing::StartsWith("z (2 records), a (1"), testing::EndsWith("and 14 more")));
}

TEST(UnreadTest, RefusesPreferences) {
  EXPECT_THAT(preferences(R"({"conversations": [], "chosen": {"from": "gpt"}, "rejected": {"from": "gpt"}})"),
              AllOf(HasSubstr("\"chosen\" is preference data"), HasSubstr("del(.chosen")));
  for (const char* json :
       {R"({"messages": [], "rejected_response": "no"})", R"({"messages": [], "rejected": [{}]})",
        R"({"instruction": "", "output": "", "rejected_messages": [{}]})", R"({"prompt": "", "chosen_response": "y"})"})
    EXPECT_THAT(preferences(json), HasSubstr("is preference data")) << json;
  EXPECT_EQ(preferences(R"({"messages": [], "chosen": null, "rejected_response": "", "rejected": []})"), "");
}

TEST(UnreadTest, RefusesAnswersThatMayBeUnwanted) {
  for (const char* label : {"true", "false", "1", "0", "1.0", "\"False\"", "\"1\""})
    EXPECT_THAT(preferences(R"({"messages": [], "label": )" + std::string(label) + "}"),
                AllOf(HasSubstr("\"label\" says whether the answer is wanted (KTO)"), HasSubstr("del(.label)")))
        << label;
  EXPECT_THAT(preferences(R"({"messages": [], "kto_tag": true})"), HasSubstr("\"kto_tag\""));
  for (const char* label : {"null", "2", "0.5", "\"greeting\"", "[1, 2]"})
    EXPECT_EQ(preferences(R"({"messages": [], "label": )" + std::string(label) + "}"), "") << label;
}

}  // namespace
}  // namespace strata::text
