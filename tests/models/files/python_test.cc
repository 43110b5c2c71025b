#include "models/files/python.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace strata::models {
namespace {

// The JSON after its numbers were marked and then restored.
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

TEST(PythonNumbers, SurviveARoundTrip) {
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

TEST(PythonNumbers, LeaveOtherTextUnchanged) {
  for (const char* json : {R"({"x":1,"y":-2.5e3,"z":[0,9223372036854775807]})", R"({"NaN":"Infinity, NaN 1e999"})",
                           R"({"a":"\" NaN \\","b":true})"})
    EXPECT_EQ(without_python_numbers(json), json);
  EXPECT_EQ(python_number_of("NaN"), std::nullopt) << "a string of the file";
  EXPECT_EQ(python_number_of(""), std::nullopt);
}

// These remain mistakes, which simdjson reports.
TEST(PythonNumbers, IgnoreWordsThatBeginLikeNumbers) {
  for (const char* json : {"{\"x\":NaNs}", "{\"x\":Infinity1}", "{\"x\":1e999x}", "{\"x\":-NaN}"})
    EXPECT_EQ(without_python_numbers(json), json);
}

// Both read these patterns in the same way, and names of modules have no other characters.
TEST(PythonPatterns, AcceptCommonSyntax) {
  for (const char* pattern :
       {R"(.*\.layers\.(?:1|2)\.(?!mlp).*_proj)", R"(.*?[qv]_proj)", R"(a{2}?b{1,}c{0,3}d??)", R"([^a-c_.-]+)",
        R"([\d\-.]+)", R"(\b[\w]+\B\x61)", R"(}x]+)", R"([a|*+{(]*)", R"((?=model).*q_proj|^lm_head$)"})
    EXPECT_EQ(foreign_syntax(pattern), std::nullopt) << pattern;
}

// Python interprets the first of each row differently, or refuses it.
TEST(PythonPatterns, NameUnsupportedSyntax) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"(.*+q_proj)", "possessive or double repetitions (*+)"},
      {R"(.{1,3}+q_proj)", "possessive or double repetitions ({1,3}+)"},
      {R"(.*{2}q_proj)", "two repetitions in a row (*{)"},
      {R"(a**)", "two repetitions in a row (**)"},
      {R"(a*?*)", "two repetitions in a row (?*)"},
      {R"(\b+a)", "a repetition of nothing (+)"},
      {R"(a{x})", "a brace that begins no repetition such as {2} or {1,3}"},
      {R"(a{,3})", "a repetition without a minimum ({,)"},
      {R"(.*[[:alpha:]]_proj)", "named sets ([:)"},
      {R"([[.a.]])", "named sets ([.)"},
      {R"([[=a=]])", "named sets ([=)"},
      {R"([]a])", "a set that begins with a bracket ([])"},
      {R"([\w-a])", R"(a range in a set that is not of two plain characters (\w-a))"},
      {R"([a-c-e])", "a dash after a range in a set (write it as the last character)"},
      {R"(.*\.\q_proj)", R"(\q)"},
      {R"([\A])", R"(\A)"},
      {R"(a\Z)", R"(\Z)"},
      {R"(\0)", R"(\0)"},
      {R"((q)\1)", R"(back-references or octal numbers (\1))"},
      {R"(\161_proj)", R"(back-references or octal numbers (\1))"},
      {R"((?m).*q_proj)", "flags ((?m)"},
      {R"((?x)q)", "flags ((?x)"},
      {R"((?-i:q))", "flags ((?-)"},
      {R"((?<!q)_proj)", "look-behind ((?<)"},
      {R"((?>q)_proj)", "atomic groups ((?>)"},
      {"\xc3\xa9?q_proj", "characters outside ASCII"}};
  for (const auto& [pattern, name] : kCases) EXPECT_EQ(foreign_syntax(pattern), name) << pattern;
  EXPECT_EQ(foreign_syntax(R"(\(?P)"), std::nullopt) << "an escaped bracket is text";
}

}  // namespace
}  // namespace strata::models
