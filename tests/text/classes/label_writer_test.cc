#include "text/classes/label_writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using LabelKind = DocumentLabels::Kind;

struct WrittenLabels {
  LabelSummary summary;
  std::string lines;
};
WrittenLabels write(const std::vector<DocumentLabels>& documents, std::vector<std::string> fields = {"y"}) {
  const tests::ScratchFolder folder;
  AtomicFile file(folder.path() / "l");
  LabelWriter writer(file, std::move(fields));
  for (const DocumentLabels& labels : documents) writer.add(labels);
  WrittenLabels out{writer.finish(), ""};
  file.commit();
  out.lines = folder.read("l");
  return out;
}
DocumentLabels one(LabelValue value) {
  return {LabelKind::one, {std::move(value)}};
}

TEST(LabelWriterTest, SortsNames) {
  const WrittenLabels out = write({one("b"), one("a \"x\""), one("b")});
  EXPECT_EQ(out.lines, "{\"label\": \"b\"}\n{\"label\": \"a \\\"x\\\"\"}\n{\"label\": \"b\"}\n");
  EXPECT_EQ(out.summary.problem, "single_label_classification");
  EXPECT_THAT(out.summary.names, ElementsAre("a \"x\"", "b"));
  EXPECT_THAT(out.summary.counts, ElementsAre(1u, 2u));
  EXPECT_THAT(write({one(std::int64_t{10}), one(std::int64_t{9}), one(std::int64_t{-1})}).summary.names,
              ElementsAre("-1", "9", "10"));
  EXPECT_THAT(write({one(std::int64_t{10}), one(std::int64_t{9}), one("n")}).summary.names,
              ElementsAre("10", "9", "n"));
}

DocumentLabels list(std::vector<int> numbers, bool sure = false) {
  DocumentLabels out{.kind = LabelKind::many};
  bool flags = !numbers.empty();
  for (const int number : numbers) {
    if (std::ranges::find(out.values, std::optional<LabelValue>(std::int64_t{number})) != out.values.end()) sure = true;
    out.values.emplace_back(std::int64_t{number});
    flags = flags && (number == 0 || number == 1);
  }
  if (!flags) return out;
  out.flags.assign(numbers.begin(), numbers.end());
  out.is_vector = sure;
  return out;
}

TEST(LabelWriterTest, ListsOfZeroAndOneOfOneLengthAreVectors) {
  const WrittenLabels out = write({list({0, 1}), list({1, 0}), list({1, 1}), list({0, 0}), list({1, 0})});
  EXPECT_EQ(out.lines,
            "{\"labels\": [\"LABEL_1\"]}\n{\"labels\": [\"LABEL_0\"]}\n{\"labels\": [\"LABEL_0\", "
            "\"LABEL_1\"]}\n{\"labels\": []}\n{\"labels\": [\"LABEL_0\"]}\n");
  EXPECT_TRUE(out.summary.vectors);
  EXPECT_EQ(out.summary.problem, "multi_label_classification");
  EXPECT_THAT(out.summary.names, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_THAT(out.summary.counts, ElementsAre(3u, 2u));
  EXPECT_TRUE(write({list({0, 1}), list({1, 0})}).summary.vectors);
  // A class without texts still has its number.
  EXPECT_THAT(write({list({0, 0, 1, 0}), list({0, 0, 1, 1})}).summary.counts, ElementsAre(0u, 0u, 2u, 1u));
  EXPECT_TRUE(write({list({1}, true), list({0}, true)}).summary.vectors) << "1.0 and 0.0";
}

TEST(LabelWriterTest, ListsThatNameClassesAreNotVectors) {
  const WrittenLabels out = write({list({0, 1}), list({1, 0}), list({1}), list({0, 1})});
  EXPECT_EQ(out.lines, "{\"labels\": [0, 1]}\n{\"labels\": [1, 0]}\n{\"labels\": [1]}\n{\"labels\": [0, 1]}\n");
  EXPECT_FALSE(out.summary.vectors);
  EXPECT_THAT(out.summary.names, ElementsAre("0", "1"));
  EXPECT_THAT(out.summary.counts, ElementsAre(3u, 4u));
  EXPECT_THAT(write({list({0, 1}), list({2, 0})}).summary.names, ElementsAre("0", "1", "2"));
  EXPECT_THAT(write({list({1}), list({2}), list({})}).summary.names, ElementsAre("1", "2"));
}

TEST(LabelWriterTest, RefusesAmbiguousLists) {
  const auto asks = testing::AllOf(HasSubstr("record 1"), HasSubstr("may be vectors"), HasSubstr("as names"));
  EXPECT_FAILURE(write({list({0, 1, 1}), list({0, 1})}), Exit::usage, asks);
  EXPECT_FAILURE(write({list({0, 1}), list({0, 1, 1})}), Exit::usage, asks);
  EXPECT_FAILURE(write({list({0, 1, 1}), list({2, 0, 1})}), Exit::usage, asks);
  EXPECT_FAILURE(write({list({0}), list({}), list({1, 1})}), Exit::usage, asks);
  EXPECT_FAILURE(write({list({0}), list({1})}), Exit::usage, HasSubstr("without brackets if they are two classes"));
  const auto empty = [](const char* record, const char* numbers) {
    return testing::AllOf(HasSubstr(record), HasSubstr("has an empty list"), HasSubstr(numbers));
  };
  EXPECT_FAILURE(write({list({1, 0}), list({0, 1}), list({})}), Exit::usage, empty("record 3", "2 numbers of 0 or 1"));
  EXPECT_FAILURE(write({list({}), list({1, 0}), list({0, 1})}), Exit::usage, empty("record 1", "2 numbers of 0 or 1"));
  EXPECT_FAILURE(write({list({1}), list({}), list({0})}), Exit::usage, empty("record 2", "one number of 0 or 1"));
  EXPECT_FALSE(write({list({1, 0}), list({}), list({1})}).summary.vectors) << "of two lengths: names";
}

TEST(LabelWriterTest, NumbersWithADecimalPointAreARegression) {
  const WrittenLabels out = write({one(std::int64_t{3}), one(-0.5)});
  EXPECT_EQ(out.lines, "{\"label\": 3}\n{\"label\": -0.5}\n");
  EXPECT_EQ(out.summary.problem, "regression");
  EXPECT_TRUE(out.summary.names.empty());
  EXPECT_EQ(out.summary.least, -0.5);
  EXPECT_EQ(out.summary.most, 3);
  EXPECT_FALSE(out.summary.all_whole);
  EXPECT_TRUE(write({one(1.0), one(0.0)}).summary.all_whole);
}

// NaN in a table is not a class among numbers, and a number with a point is not one among names.
TEST(LabelWriterTest, RefusesNumbersMixedWithNames) {
  EXPECT_FAILURE(write({one(1.5), one("joy"), one("NaN")}), Exit::usage,
                 HasSubstr("--labels y: record 2 has \"joy\", but record 1 the number 1.5"));
  EXPECT_FAILURE(write({one(std::int64_t{1}), one("nan"), one(std::int64_t{0})}), Exit::usage,
                 HasSubstr("record 2 has \"nan\", but the others have numbers"));
  EXPECT_THAT(write({one("nan"), one("zh")}).summary.names, ElementsAre("nan", "zh")) << "languages";
  EXPECT_THAT(write({one("other"), one(std::int64_t{1})}).summary.names, ElementsAre("1", "other"));
}

TEST(LabelWriterTest, WritesListsAndWords) {
  const WrittenLabels many = write({{LabelKind::many, {LabelValue("v")}}, {LabelKind::many, {}}}, {"w", "v", "u"});
  EXPECT_EQ(many.lines, "{\"labels\": [\"v\"]}\n{\"labels\": []}\n");
  EXPECT_EQ(many.summary.problem, "multi_label_classification");
  EXPECT_THAT(many.summary.names, ElementsAre("w", "v", "u"));
  const WrittenLabels words = write({{LabelKind::words, {std::nullopt, LabelValue("O"), std::nullopt}}});
  EXPECT_EQ(words.lines, "{\"labels\": [null, \"O\", null]}\n");
  EXPECT_EQ(words.summary.problem, "token_classification");
}

// If the texts of a column have several labels each, they must not be read as long names.
TEST(LabelWriterTest, RefusesNamesThatLookLikeSeveralLabels) {
  EXPECT_FAILURE(
      write({one("2,5"), one(std::int64_t{2}), one(std::int64_t{5}), one("5,2")}), Exit::usage,
      AllOf(HasSubstr("--labels y: the label \"2,5\", and 1 like it, seems to be several"),
            HasSubstr("([\"2\", \"5\"])"), HasSubstr("a column per class"), HasSubstr("with a decimal point")));
  EXPECT_FAILURE(write({one("joy"), one("fear"), one("fear|joy")}), Exit::usage,
                 AllOf(HasSubstr("\"fear|joy\" seems"), HasSubstr("write it without \"|\"")));
  EXPECT_FAILURE(write({one("B-X O"), one("O O")}), Exit::usage, HasSubstr("\"B-X O\" consists of tags of words"));
  // A long label is shortened between characters.
  const std::string letters(37, 'x');
  EXPECT_FAILURE(write({one("B-" + letters + "é O"), one("O O")}), Exit::usage,
                 HasSubstr("\"B-" + letters + "...\" consists of tags of words"));
  const auto words = [](const char* name, bool per_word) {
    DocumentLabels out = one(name);
    out.one_per_word = per_word;
    out.several_words = true;
    return out;
  };
  EXPECT_FAILURE(write({words("DET NOUN", true), words("NOUN VERB X", true)}), Exit::usage,
                 AllOf(HasSubstr("as many words as its text"), HasSubstr("\"DET NOUN\"")));
  EXPECT_EQ(write({words("turn on", true), words("turn off", false)}).summary.names.size(), 2u);
}

TEST(LabelWriterTest, RefusesInvalidLabels) {
  EXPECT_FAILURE(write({one("a"), {LabelKind::many, {}}}), Exit::corrupt, HasSubstr("record 2 has a list of labels"));
  EXPECT_FAILURE(write({{LabelKind::many, {}}}), Exit::usage, HasSubstr("no record has a label"));
  std::vector<DocumentLabels> all;
  for (std::int64_t i = 0; i < 16386; ++i) all.push_back(one(i));
  EXPECT_FAILURE(write(all), Exit::usage, HasSubstr("more than 16384 different values"));
}

// A user with a hundred files needs the file's name.
TEST(LabelWriterTest, NamesFileAndLine) {
  const tests::ScratchFolder folder;
  AtomicFile file(folder.path() / "l");
  LabelWriter writer(file, {"y"});
  writer.add({.values = {LabelValue(std::int64_t{1})}, .line = 2}, "a.csv");
  writer.add({.values = {LabelValue(std::int64_t{-100})}, .line = 7}, "b.csv");
  EXPECT_FAILURE(writer.add({.kind = LabelKind::many, .line = 9}, "b.csv"), Exit::corrupt,
                 HasSubstr("b.csv, line 9 has a list of labels, but the earlier documents have one label"));
  EXPECT_FAILURE(writer.finish(), Exit::usage, HasSubstr("--labels y: b.csv, line 7 has the label -100"));
}

// Hugging Face's data sets mark a missing label in this way. Among a regression's numbers, it is a number.
TEST(LabelWriterTest, RefusesMinus100AsAClass) {
  const std::int64_t none = -100;
  EXPECT_FAILURE(write({one(std::int64_t{1}), one(none), one(std::int64_t{0})}), Exit::usage,
                 HasSubstr("--labels y: record 2 has the label -100"));
  EXPECT_FAILURE(write({{LabelKind::many, {LabelValue(std::int64_t{1}), LabelValue(none)}}}), Exit::usage,
                 HasSubstr("record 1 has the label -100"));
  EXPECT_EQ(write({one(none), one(0.5)}).summary.least, -100);
}

// A sidecar's size is limited, so that everything written can be read.
TEST(LabelWriterTest, RefusesNamesTooLongForASidecar) {
  const auto named = [](std::size_t classes, std::size_t bytes) {
    std::vector<DocumentLabels> all;
    for (std::size_t i = 0; i < classes; ++i) all.push_back(one(fmt::format("{:0{}}", i, bytes)));
    return all;
  };
  EXPECT_FAILURE(write(named(12000, 85)), Exit::usage, HasSubstr("check that it is a label"));
  EXPECT_FAILURE(write(named(2300, 240)), Exit::usage,
                 HasSubstr("--labels y: the names of the 2300 classes have 561200 bytes, more than 524288"));
  EXPECT_EQ(write(named(2000, 240)).summary.names.size(), 2000u);
}

}  // namespace
}  // namespace strata::text
