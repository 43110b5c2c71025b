#include "text/json/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/template/values/json_text.h"

namespace strata::text {
namespace {

using testing::HasSubstr;

std::string again(std::string_view text) {
  return jinja::json_text(parse_json(text), {});
}
// The place and the message of a fault.
std::pair<std::size_t, std::string> json_fault(std::string_view text) {
  try {
    (void)parse_json(text);
  } catch (const JsonFault& found) {
    return {found.at, found.message};
  }
  ADD_FAILURE() << "no fault in " << text;
  return {};
}

TEST(JsonValueTest, ReadsValuesLikePython) {
  EXPECT_EQ(again(R"( {"b": [1, -2.50, 1e3, true, false, null], "a": {"x": ""}} )"),
            R"({"b": [1, -2.5, 1000.0, true, false, null], "a": {"x": ""}})");
  EXPECT_EQ(again(R"("a\u00e9\ud83d\ude00\n\/\\\"")"), "\"a\xc3\xa9\xf0\x9f\x98\x80\\n/\\\\\\\"\"");
  EXPECT_EQ(again(R"({"a": 1, "b": 2, "a": 3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(again("-0"), "0");
  EXPECT_EQ(again("9223372036854775807"), "9223372036854775807");
  // An identifier beyond 64 bits that no template sees.
  EXPECT_EQ(again(R"({"id": 18446744073709551615})"), R"({"id": 1.8446744073709552e+19})");
}

// Python writes NaN and integers of any size, in fields that are not read.
TEST(JsonValueTest, ListsUnusualNumbersWithTheirFields) {
  const std::string text =
      R"({"id": 123456789012345678901234567890, "a": {"b": [1e400, -Infinity]}, "c": NaN, "d": 1})";
  std::vector<UnrepresentableNumber> odd;
  const jinja::Value value = parse_json(text, RepeatedKeys::refused, &odd);
  std::vector<std::string> found;
  for (const UnrepresentableNumber& number : odd) found.push_back(number.field + "=" + number.written);
  EXPECT_THAT(found, testing::ElementsAre("id=123456789012345678901234567890", "a=1e400", "a=-Infinity", "c=NaN"));
  EXPECT_EQ(odd[0].at, text.find("1234"));
  EXPECT_EQ(value.find("d")->integer(), 1);
  odd.clear();
  (void)parse_json(R"({"tiny": 1e-400, "most": -9223372036854775808})", RepeatedKeys::refused, &odd);
  EXPECT_TRUE(odd.empty());
  EXPECT_THAT(json_fault(R"({"a": NaN})"), testing::Pair(6u, HasSubstr("no such number in JSON")));
}

TEST(JsonValueTest, AFaultHasAPlace) {
  EXPECT_THAT(json_fault(R"({"a": )"), testing::Pair(6u, HasSubstr("found the end")));
  EXPECT_THAT(json_fault(R"({"a" 1})"), testing::Pair(5u, HasSubstr("expected : ")));
  EXPECT_THAT(json_fault(R"({"a": 1,})"), testing::Pair(8u, HasSubstr("name of a field")));
  EXPECT_THAT(json_fault(R"([1 2])"), testing::Pair(3u, HasSubstr("expected , or ]")));
  EXPECT_THAT(json_fault("[1] x"), testing::Pair(4u, HasSubstr("the end after the JSON value, found 'x'")));
  EXPECT_THAT(json_fault(R"(["abc)"), testing::Pair(1u, HasSubstr("not closed")));
  EXPECT_THAT(json_fault("[\"a\nb\"]"), testing::Pair(3u, HasSubstr("control character")));
  EXPECT_THAT(json_fault(R"(["\q"])"), testing::Pair(3u, HasSubstr("escape of 'q'")));
  EXPECT_THAT(json_fault(R"(["\ud83d"])"), testing::Pair(8u, HasSubstr("surrogate")));
  EXPECT_THAT(json_fault("[\"\xff\"]"), testing::Pair(1u, HasSubstr("not UTF-8")));
  EXPECT_THAT(json_fault("[01]"), testing::Pair(3u, HasSubstr("begins with 0")));
  EXPECT_THAT(json_fault("nul"), testing::Pair(0u, HasSubstr("expected a value")));
  EXPECT_THAT(json_fault(R"({"a": [{"b": 99999999999999999999}]})"), testing::Pair(13u, HasSubstr("beyond 64 bits")));
  EXPECT_THAT(json_fault(std::string(100'000, '[')).second, HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace strata::text
