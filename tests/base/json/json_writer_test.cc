#include "base/json/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace strata {
namespace {

TEST(JsonWriter, EscapesCharactersThatStringsMayNotContain) {
  EXPECT_EQ(json_string("a \"b\" \\ \n\x01\x7f é"), "\"a \\\"b\\\" \\\\ \\u000a\\u0001\\u007f é\"");
}

TEST(JsonWriter, NumbersReadBackTheSame) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(JsonWriter, KeepsTheOrderOfMembers) {
  const std::string name = "loss \"x\"";
  EXPECT_EQ(JsonObject()
                .add("step", 3)
                .add(name, 0.5)
                .add("ms", Decimals{1.23456, 2})
                .add("never", Decimals{std::numeric_limits<double>::infinity(), 2})
                .add("best", true)
                .add("tokens", std::uint64_t{18446744073709551615u})
                .add("kind", "gelu")
                .add("ready", JsonText{"{\"a\":[1]}"})
                .add("empty", JsonObject())
                .add("list", JsonArray().add(1).add("two").add(JsonArray()).add_all(std::vector<double>{0.25, 4}))
                .text(),
            "{\"step\":3,\"loss \\\"x\\\"\":0.5,\"ms\":1.23,\"never\":null,\"best\":true,"
            "\"tokens\":18446744073709551615,\"kind\":\"gelu\",\"ready\":{\"a\":[1]},\"empty\":{},"
            "\"list\":[1,\"two\",[],0.25,4]}");
  EXPECT_EQ(JsonObject().add("some", std::optional(1)).add("none", std::optional<int>()).text(),
            "{\"some\":1,\"none\":null}");
  EXPECT_TRUE(JsonArray().empty());
  EXPECT_EQ(JsonArray().text(), "[]");
}

TEST(JsonWriter, TheLayoutDeterminesSeparators) {
  const auto object = [](JsonLayout layout) {
    return JsonObject(layout).add("a", 1).add("b", JsonArray(layout).add(2).add(3)).text();
  };
  EXPECT_EQ(object(JsonLayout::compact), "{\"a\":1,\"b\":[2,3]}");
  EXPECT_EQ(object(JsonLayout::spaced), "{\"a\": 1, \"b\": [2, 3]}");
  EXPECT_EQ(object(JsonLayout::wrapped), "{\"a\":1,\n\"b\":[2,\n3]}");
  EXPECT_EQ(object(JsonLayout::lines), "{\n\"a\":1,\n\"b\":[\n2,\n3]}");
  EXPECT_EQ(object(JsonLayout::indented), "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ]\n}");
  EXPECT_EQ(JsonObject(JsonLayout::indented).add("a", JsonObject(JsonLayout::indented)).text(), "{\n  \"a\": {}\n}");
  EXPECT_EQ(JsonObject(JsonLayout::indented).add("a", "b\nc").text(), "{\n  \"a\": \"b\\u000ac\"\n}");
}

TEST(JsonWriter, AppendsTheMembersOfAnotherObject) {
  const JsonObject other = JsonObject().add("b", 2).add("c", 3);
  EXPECT_EQ(JsonObject().add("a", 1).add_all(other).add_all(JsonObject()).text(), "{\"a\":1,\"b\":2,\"c\":3}");
  EXPECT_EQ(JsonObject(JsonLayout::wrapped).add("a", 1).add_all(other).text(), "{\"a\":1,\n\"b\":2,\"c\":3}");
  EXPECT_EQ(JsonObject().add_all(other).members(), "\"b\":2,\"c\":3");
}

}  // namespace
}  // namespace strata
