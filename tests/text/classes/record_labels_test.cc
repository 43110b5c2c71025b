#include "text/classes/record_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat/record.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The labels of a record as texts, "-" for none.
std::vector<std::string> labels(const std::string& json, const LabelRules& rules) {
  const jinja::Value record = parse_json(json);
  std::vector<std::string> out;
  for (const auto& value : class_record(record, rules).labels.values) out.push_back(value ? text_of(*value) : "-");
  return out;
}
std::string label_fault(const std::string& json, const LabelRules& rules) {
  try {
    (void)labels(json, rules);
  } catch (const RecordFault& found) {
    return found.message;
  }
  return "none";
}

TEST(RecordLabelsTest, OneLabelIsANameOrANumber) {
  const LabelRules rules{.labels = {"y"}};
  EXPECT_THAT(labels(R"({"text": "a", "y": "joy"})", rules), ElementsAre("joy"));
  EXPECT_THAT(labels(R"({"text": "a", "y": "3"})", rules), ElementsAre("3"));
  EXPECT_THAT(labels(R"({"text": "a", "y": 2})", rules), ElementsAre("2"));
  EXPECT_THAT(labels(R"({"text": "a", "y": 2.5})", rules), ElementsAre("2.5"));
  EXPECT_THAT(labels(R"({"text": "a", "y": true})", rules), ElementsAre("true"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": null})", rules), HasSubstr("\"y\" is null"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": ""})", rules), HasSubstr("\"y\" is empty"));
  EXPECT_THAT(label_fault(R"({"text": "a", "z": 1})", rules),
              HasSubstr("no field \"y\" (--labels); the fields are text, z"));
  EXPECT_THAT(label_fault(R"({"texts": "a", "y": 1})", rules), HasSubstr("no field \"text\" (--field)"));
  EXPECT_THAT(label_fault(R"({"text": 1, "y": 1})", rules), HasSubstr("expected a string in \"text\""));
}

TEST(RecordLabelsTest, ListsOfZeroAndOneMayBeVectors) {
  const auto labels_in = [](const std::string& y) {
    const jinja::Value record = parse_json("{\"text\": \"a b\", \"y\": " + y + "}");
    return class_record(record, {.labels = {"y"}}).labels;
  };
  for (const char* sure : {"[1, 1, 0]", "[1.0, 0.0]", "[0, 1.0]", "[true, false]", "[0.0]", "[0, 0]"}) {
    EXPECT_TRUE(labels_in(sure).is_vector) << sure;
    EXPECT_TRUE(labels_in(sure).values.empty()) << sure;
  }
  EXPECT_THAT(labels_in("[1.0, 0.0, true]").flags, ElementsAre(1, 0, 1));
  for (const char* either : {"[0, 1]", "[1]"}) {
    EXPECT_FALSE(labels_in(either).is_vector) << either;
    EXPECT_FALSE(labels_in(either).flags.empty()) << either;
  }
  for (const char* names : {"[0, 2]", "[]", "[\"0\", \"1\"]", "[2, 2]"})
    EXPECT_TRUE(labels_in(names).flags.empty()) << names;
  EXPECT_THAT(label_fault(R"({"text": "a", "y": [0.5, 1.0]})", {.labels = {"y"}}),
              HasSubstr("a 0 or 1 for each class, found 0.5"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": ["1", "1"]})", {.labels = {"y"}}),
              HasSubstr("repeats \"0\" or \"1\" in quotes"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": "[1, 0]"})", {.labels = {"y"}, .of_table = true}),
              HasSubstr("is a list"));
  EXPECT_THAT(label_fault(R"({"text": "a", " y": "1"})", {.labels = {"y"}}), HasSubstr("only \" y\" with a space"));
}

// JSON distinguishes numbers. A table's field is a number if programs write numbers like that.
TEST(RecordLabelsTest, StringsAreNamesAndFieldsOfTablesMayBeNumbers) {
  const auto value = [](const std::string& y, bool of_table) {
    const auto record = parse_json("{\"text\": \"a\", \"y\": \"" + y + "\"}");
    return *class_record(record, {.labels = {"y"}, .of_table = of_table}).labels.values[0];
  };
  for (const char* text : {"7", "007", "1e5", "2.0", "-1"}) EXPECT_EQ(value(text, false), LabelValue(text)) << text;
  for (const char* text : {"007", "-0", "-01", "1e5", "1E5", "01.5", "1.5.0", "nan",  "inf",   "0x10",
                           "-",   "+7", ".",   "+.",  "-.",  ".e5",  "+-1.5", "1.5e", "1.5e+", "1.5 "})
    EXPECT_EQ(value(text, true), LabelValue(text)) << text;
  EXPECT_EQ(value("7", true), LabelValue(std::int64_t{7}));
  EXPECT_EQ(value("-12", true), LabelValue(std::int64_t{-12}));
  EXPECT_EQ(value("0", true), LabelValue(std::int64_t{0}));
  EXPECT_EQ(value("5.000", true), LabelValue(5.0));
  EXPECT_EQ(value("-0.25", true), LabelValue(-0.25));
  EXPECT_EQ(value("1e-05", true), LabelValue(1e-5)) << "as Python writes it";
  EXPECT_EQ(value("2.5e+20", true), LabelValue(2.5e20));
  // C and pandas read these as numbers.
  EXPECT_EQ(value(".5", true), LabelValue(0.5));
  EXPECT_EQ(value("-.72", true), LabelValue(-0.72));
  EXPECT_EQ(value("1.", true), LabelValue(1.0));
  EXPECT_EQ(value("+0.3", true), LabelValue(0.3));
  EXPECT_EQ(value("+.5", true), LabelValue(0.5));
  EXPECT_EQ(value("1.5E5", true), LabelValue(1.5e5));
  EXPECT_EQ(value("-1.5e5", true), LabelValue(-1.5e5));
  EXPECT_EQ(value("1E-05", true), LabelValue(1e-5));
  EXPECT_EQ(value("9223372036854775807", true), LabelValue(std::int64_t{9223372036854775807}));
  EXPECT_EQ(value("12345678901234567890.0", true), LabelValue(12345678901234567890.0));
  EXPECT_EQ(value("12345678901234567890", false), LabelValue("12345678901234567890"));
}

// Two of them may be the same double.
TEST(RecordLabelsTest, IntegersOfMoreThan64BitsAreRefused) {
  for (const std::string text : {"9223372036854775808", "12345678901234567890", "-9223372036854775809",
                                 "340282366920938463463374607431768211456"})
    EXPECT_THAT(label_fault("{\"text\": \"a\", \"y\": \"" + text + "\"}", {.labels = {"y"}, .of_table = true}),
                testing::AllOf(HasSubstr("\"y\" is " + text + ", which does not fit 64 bits"), HasSubstr("id" + text)));
}

// A field that an option names and a record lacks is the user's mistake. Wrong content is the record's fault.
TEST(RecordLabelsTest, DistinguishesUserErrorsFromBadRecords) {
  const auto code = [](const std::string& json, const LabelRules& rules) {
    try {
      (void)labels(json, rules);
    } catch (const RecordFault& found) {
      return found.code;
    }
    return Exit::done;
  };
  EXPECT_EQ(code(R"({"text": "a", "z": 1})", {.labels = {"y"}}), Exit::usage);
  EXPECT_EQ(code(R"({"body": "a", "y": 1})", {.labels = {"y"}}), Exit::usage);
  EXPECT_EQ(code(R"({"text": "a", "y": 1})", {.labels = {"y"}, .pair = "b"}), Exit::usage);
  EXPECT_EQ(code(R"({"text": "a", "y": null})", {.labels = {"y"}}), Exit::corrupt);
  const std::string essay(300, 'x');
  EXPECT_EQ(code("{\"text\": \"a\", \"y\": \"" + essay + "\"}", {.labels = {"y"}}), Exit::usage);
  EXPECT_THAT(label_fault("{\"text\": \"a\", \"y\": \"" + essay + "\"}", {.labels = {"y"}}),
              HasSubstr("\"y\" has 300 bytes, but class names have at most 256"));
}

TEST(RecordLabelsTest, DescribesKindsInWords) {
  const LabelRules rules{.labels = {"y"}};
  EXPECT_THAT(label_fault(R"({"text": {}, "y": 1})", rules), HasSubstr("found an object"));
  EXPECT_THAT(label_fault(R"({"text": 1, "y": 1})", rules), HasSubstr("found an integer"));
  EXPECT_THAT(label_fault(R"({"text": 1.5, "y": 1})", rules), HasSubstr("found a number"));
  EXPECT_THAT(label_fault(R"({"text": null, "y": 1})", rules), HasSubstr("found null"));
  EXPECT_THAT(label_fault(R"({"text": false, "y": 1})", rules), HasSubstr("found false"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": {}})", rules), HasSubstr("found an object"));
  EXPECT_THAT(label_fault(R"({"text": ["a", 2], "y": [1, 2]})", rules), HasSubstr("found an integer"));
}

TEST(RecordLabelsTest, ReadsSeveralLabels) {
  EXPECT_THAT(labels(R"({"text": "a", "y": ["b", 3]})", {.labels = {"y"}}), ElementsAre("b", "3"));
  EXPECT_THAT(labels(R"({"text": "a", "y": []})", {.labels = {"y"}}), ElementsAre());
  EXPECT_THAT(labels(R"({"text": "a", "y": ["b", "c", "b"]})", {.labels = {"y"}}), ElementsAre("b", "c"));
  EXPECT_THAT(label_fault(R"({"text": "a", "y": [0.5]})", {.labels = {"y"}}), HasSubstr("names or numbers of classes"));
  const LabelRules flags{.labels = {"u", "v", "w"}};
  EXPECT_THAT(labels(R"({"text": "a", "u": 1, "v": "0", "w": true})", flags), ElementsAre("u", "w"));
  EXPECT_THAT(label_fault(R"({"text": "a", "u": 2, "v": 0, "w": 0})", flags),
              HasSubstr("each is 0 or 1, but \"u\" is 2"));
  EXPECT_THAT(label_fault(R"({"text": "a", "u": 1, "v": 0})", {.labels = {"u", " v"}}),
              HasSubstr("the fields are text, u, v; write names without spaces between"));
}

TEST(RecordLabelsTest, ReadsALabelPerWord) {
  const LabelRules rules{.labels = {"ner_tags"}, .text = "tokens"};
  EXPECT_THAT(labels(R"({"tokens": ["a", "b", "c"], "ner_tags": [0, -100, "B-PER"]})", rules),
              ElementsAre("0", "-", "B-PER"));
  EXPECT_THAT(label_fault(R"({"tokens": ["a", "b"], "ner_tags": [0]})", rules),
              HasSubstr("there is 1 label in \"ner_tags\", but 2 words"));
  EXPECT_THAT(label_fault(R"({"tokens": ["a"], "ner_tags": [0.5]})", rules), HasSubstr("names or numbers of classes"));
  EXPECT_THAT(label_fault(R"({"tokens": ["a"], "ner_tags": 0})", rules), HasSubstr("expected a list of labels"));
  EXPECT_THAT(label_fault(R"({"tokens": [1], "ner_tags": [0]})", rules), HasSubstr("expected words"));
}

}  // namespace
}  // namespace strata::text
