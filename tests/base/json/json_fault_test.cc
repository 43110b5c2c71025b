#include "base/json/json_fault.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace strata {
namespace {

TEST(JsonFault, ValidJsonHasNone) {
  for (const char* text :
       {"1", " {} ", "[]", "\xef\xbb\xbf{\"a\": [1, -0.5e+3, 1e-999, true, false, null, \"\\u00e4\\n\\\"\"]}\r\n",
        "{\"\xc3\xa4\xf0\x9f\x98\x80\": \"\x7f\"}", "\"\""}) {
    const auto fault = find_json_fault(text);
    EXPECT_FALSE(fault) << text << ": " << fault->found;
  }
  EXPECT_EQ(found_in_json("[]"), "another value");
}

TEST(JsonFault, NamesTheFaultAndItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "nothing on line 1"},
      {" \n\n", "nothing on line 3"},
      {"{\"a\": 1,\n\"b\": \"x", "a string without its closing quote on line 2"},
      {"{\"a\": \"x\n\", 1}", "a string without its closing quote on line 1"},
      {"{\"a\": \"x\ty\"}", "a control character in a string on line 1"},
      {"{\"a\": \"\\q\"}", "the escape \\q, which JSON does not have, in a string on line 1"},
      {"[\"\\u12g4\"]", "\\u without four digits in a string on line 1"},
      {"{\"a\": NaN}", "NaN in place of a value on line 1"},
      {"{\"a\":\n 01}", "01 in place of a number on line 2"},
      {"[1.]", "1. in place of a number on line 1"},
      {"[-]", "- in place of a number on line 1"},
      {"[1e]", "1e in place of a number on line 1"},
      {"{\"loss\":1e999}", "1e999, a number out of range on line 1"},
      {"{\"a\" 1}", "a name without a colon after it on line 1"},
      {"{\"a\"", "an unclosed object on line 1"},
      {"{\"a\": 1,\n}", "} in place of a name in quotes on line 2"},
      {"{\"a\": 1 \"b\": 2}", "\" in place of a comma or } on line 1"},
      {"{\"step\":2,", "an unclosed object on line 1"},
      {"[1,\n2\n", "an unclosed list on line 3"},
      {"[1 2]", "2 in place of a comma or ] on line 1"},
      {"[1,]", "] in place of a value on line 1"},
      {"{}\n{}", "{ after its end on line 2"},
      {"\x7f"
       "ELF",
       "byte 0x7f in place of a value on line 1"},
      {"[1]\n\xff\xfe", "bytes that are not UTF-8 on line 2"},
      {"\xed\xa0\x80", "bytes that are not UTF-8 on line 1"},
  };
  for (const auto& [text, found] : cases) EXPECT_EQ(found_in_json(text), found) << text;
  EXPECT_EQ(found_in_json("[[[1]]]", 2), "more than 2 levels on line 1");
  EXPECT_EQ(found_in_json("[[1]]", 2), "another value");
}

// Valid JSON that parsers may still refuse. It is not mentioned if there is a real fault.
TEST(JsonFault, NamesValidJsonThatParsersRefuse) {
  const std::pair<const char*, const char*> cases[] = {
      {"\xef\xbb\xbf{}", "a byte order mark at its start on line 1"},
      {"{\n\"a\": \"\\ud800\"}", "\\ud800, half of a character, in a string on line 2"},
      {"{\"a\\uDBFF\": 1}", "\\uDBFF, half of a character, in a string on line 1"},
      {"[\"\\udc00\"]", "\\udc00, half of a character, in a string on line 1"},
      {"[\"\\ud83d\\ude00\\ude00\"]", "\\ude00, half of a character, in a string on line 1"},
      {"[\"\\ud83d\\ud83d\\ude00\"]", "\\ud83d, half of a character, in a string on line 1"},
      {"[\"\\ud83d\\n\\ude00\"]", "\\ud83d, half of a character, in a string on line 1"},
      {"[\n18446744073709551616]", "18446744073709551616, an integer of more than 64 bits on line 2"},
      {"[-9223372036854775809]", "-9223372036854775809, an integer of more than 64 bits on line 1"},
  };
  for (const auto& [text, found] : cases) {
    EXPECT_EQ(found_in_json(text), found) << text;
    EXPECT_FALSE(find_json_fault(text)) << text;
    EXPECT_EQ(found_in_json(std::string(text) + "]"),
              find_json_fault(std::string(text) + "]")->found + " on line " +
                  std::to_string(find_json_fault(std::string(text) + "]")->line))
        << text;
  }
  for (const char* text : {"[\"\\ud83d\\ude00\"]", "[\"\\uD83D\\uDE00\\ud83d\\ude00\"]", "[\"\\ud7ff\\ue000\"]",
                           "[\"ud800\\\\\"]", "[18446744073709551615, -9223372036854775808, 1e300]"})
    EXPECT_EQ(found_in_json(text), "another value") << text;
}

// A file that is cut off at any place has a fault.
TEST(JsonFault, DetectsEveryTruncation) {
  const std::string text = "{\"a\": [1.5, {\"b\": \"\\u00e4\xc3\xa4\"}, true], \"c\": -2e5}";
  ASSERT_FALSE(find_json_fault(text));
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_TRUE(find_json_fault(std::string_view(text).substr(0, size))) << text.substr(0, size);
}

// A text has a fault exactly if a parser refuses it. (An integer of more than 64 bits is JSON, but simdjson does not
// read it.)
TEST(JsonFault, AgreesWithAParser) {
  const std::string whole =
      "{\"a\": [1.5, {\"b\": \"\\u00e4\xc3\xa4\"}, true], \"c\": -2e5, \"d\": [null, [], {}, \"\"]}";
  constexpr std::string_view kPieces[] = {"{", "}",  "[",    "]", ",",  ":",    "\"",   "\\",   "0", "-",
                                          ".", "e9", "null", " ", "\n", "\x01", "\xc3", "\xa4", "1", "\\u12"};
  std::mt19937 random(1);
  simdjson::dom::parser parser;
  int refused = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text = whole;
    for (std::size_t change = 0, changes = 1 + random() % 3; change < changes; ++change) {
      const std::size_t at = random() % text.size();
      const std::string piece(kPieces[random() % std::size(kPieces)]);
      text.replace(at, random() % 3, piece);
    }
    const bool parses = parser.parse(text).error() == simdjson::SUCCESS;
    refused += parses ? 0 : 1;
    ASSERT_EQ(!find_json_fault(text), parses) << text << ": " << found_in_json(text);
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 49'000);
}

}  // namespace
}  // namespace strata
