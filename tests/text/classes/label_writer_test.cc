#include "text/classes/label_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = DocumentLabels::Kind;

struct Written {
  LabelSummary summary;
  std::string lines;
};
Written write(const std::vector<DocumentLabels>& documents, std::vector<std::string> fields = {"y"}) {
  const tests::ScratchFolder folder;
  AtomicFile file(folder.path() / "l");
  LabelWriter writer(file, std::move(fields));
  for (const DocumentLabels& labels : documents) writer.add(labels);
  Written out{writer.finish(), ""};
  file.commit();
  out.lines = folder.read("l");
  return out;
}
DocumentLabels one(LabelValue value) {
  return {Kind::one, {std::move(value)}};
}

TEST(LabelWriterTest, NamesInOrder) {
  const Written out = write({one("b"), one("a \"x\""), one("b")});
  EXPECT_EQ(out.lines, "{\"label\": \"b\"}\n{\"label\": \"a \\\"x\\\"\"}\n{\"label\": \"b\"}\n");
  EXPECT_EQ(out.summary.problem, "single_label_classification");
  EXPECT_THAT(out.summary.names, ElementsAre("a \"x\"", "b"));
  EXPECT_THAT(out.summary.counts, ElementsAre(1u, 2u));
  EXPECT_THAT(write({one(std::int64_t{10}), one(std::int64_t{9}), one(std::int64_t{-1})}).summary.names,
              ElementsAre("-1", "9", "10"));
  EXPECT_THAT(write({one(std::int64_t{10}), one(std::int64_t{9}), one("n")}).summary.names,
              ElementsAre("10", "9", "n"));
}

TEST(LabelWriterTest, NumbersWithAPointAreARegression) {
  const Written out = write({one(std::int64_t{3}), one(-0.5)});
  EXPECT_EQ(out.lines, "{\"label\": 3}\n{\"label\": -0.5}\n");
  EXPECT_EQ(out.summary.problem, "regression");
  EXPECT_TRUE(out.summary.names.empty());
  EXPECT_EQ(out.summary.least, -0.5);
  EXPECT_EQ(out.summary.most, 3);
  EXPECT_FALSE(out.summary.all_whole);
  EXPECT_TRUE(write({one(1.0), one(0.0)}).summary.all_whole);
}

// A table's NaN is no class beside numbers, nor is a number with a point beside names.
TEST(LabelWriterTest, NumbersBesideNamesAreRefused) {
  EXPECT_FAILURE(write({one(1.5), one("joy"), one("NaN")}), Exit::usage,
                 HasSubstr("--labels y: record 2 has \"joy\", and record 1 the number 1.5"));
  EXPECT_FAILURE(write({one(std::int64_t{1}), one("nan"), one(std::int64_t{0})}), Exit::usage,
                 HasSubstr("record 2 has \"nan\", and the others have numbers"));
  EXPECT_THAT(write({one("nan"), one("zh")}).summary.names, ElementsAre("nan", "zh")) << "languages";
  EXPECT_THAT(write({one("other"), one(std::int64_t{1})}).summary.names, ElementsAre("1", "other"));
}

TEST(LabelWriterTest, ListsAndWords) {
  const Written many = write({{Kind::many, {LabelValue("v")}}, {Kind::many, {}}}, {"w", "v", "u"});
  EXPECT_EQ(many.lines, "{\"labels\": [\"v\"]}\n{\"labels\": []}\n");
  EXPECT_EQ(many.summary.problem, "multi_label_classification");
  EXPECT_THAT(many.summary.names, ElementsAre("w", "v", "u"));
  const Written words = write({{Kind::words, {std::nullopt, LabelValue("O"), std::nullopt}}});
  EXPECT_EQ(words.lines, "{\"labels\": [null, \"O\", null]}\n");
  EXPECT_EQ(words.summary.problem, "token_classification");
}

TEST(LabelWriterTest, WhatIsNoLabelIsRefused) {
  EXPECT_FAILURE(write({one("a"), {Kind::many, {}}}), Exit::corrupt, HasSubstr("record 2 has a list of labels"));
  EXPECT_FAILURE(write({{Kind::many, {}}}), Exit::usage, HasSubstr("no record has a label"));
  std::vector<DocumentLabels> all;
  for (std::int64_t i = 0; i < 16386; ++i) all.push_back(one(i));
  EXPECT_FAILURE(write(all), Exit::usage, HasSubstr("more than 16384 different values"));
}

}  // namespace
}  // namespace strata::text
