#include "models/files/python.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace strata::models {
namespace {

// The JSON as the marks make it readable, and then with its numbers again.
std::string there_and_back(const std::string& json) {
  simdjson::dom::parser parser;
  const std::string readable = without_python_numbers(json);
  return minified(parser.parse(readable).value());
}

double number_in(const std::string& json) {
  simdjson::dom::parser parser;
  const std::string readable = without_python_numbers(json);
  const std::string_view text = parser.parse(readable)["x"].get_string().value();
  return python_number_of(text).value();
}

TEST(PythonNumbers, ComeBackAsTheyWere) {
  for (const char* json : {R"({"x":NaN})", R"({"x":Infinity,"y":-Infinity})", R"([1e999,-1e999,2])",
                           R"({"x":123456789012345678901234567890})", R"([[NaN],{"a":[Infinity]}])"})
    EXPECT_EQ(there_and_back(json), json);
}

TEST(PythonNumbers, HaveTheirValues) {
  EXPECT_TRUE(std::isnan(number_in(R"({"x": NaN})")));
  EXPECT_EQ(number_in(R"({"x": -Infinity })"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(number_in("{\"x\":1e400\n}"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(number_in(R"({"x":100000000000000000000})"), 1e20);
}

TEST(PythonNumbers, OthersAreLeftAsTheyAre) {
  for (const char* json : {R"({"x":1,"y":-2.5e3,"z":[0,9223372036854775807]})", R"({"NaN":"Infinity, NaN 1e999"})",
                           R"({"a":"\" NaN \\","b":true})"})
    EXPECT_EQ(without_python_numbers(json), json);
  EXPECT_EQ(python_number_of("NaN"), std::nullopt) << "a string of the file";
  EXPECT_EQ(python_number_of(""), std::nullopt);
}

// They stay mistakes, which simdjson names.
TEST(PythonNumbers, WordsThatOnlyBeginLikeOneAreNoNumbers) {
  for (const char* json : {"{\"x\":NaNs}", "{\"x\":Infinity1}", "{\"x\":1e999x}", "{\"x\":-NaN}"})
    EXPECT_EQ(without_python_numbers(json), json);
}

}  // namespace
}  // namespace strata::models
