#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "launcher/screen/run_text.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Class i was predicted as class j i * 10 + j times.
runtime::ClassReport report_of(std::size_t classes) {
  runtime::ClassReport out;
  for (const char* name : {"eval_accuracy", "eval_f1", "eval_precision", "eval_recall", "eval_f1_micro"})
    out.metrics.emplace_back(name, 0.5);
  out.classes.resize(classes);
  for (std::size_t i = 0; i < classes; ++i) {
    out.confusion.emplace_back();
    for (std::size_t j = 0; j < classes; ++j) out.confusion[i].push_back(i * 10 + j);
  }
  return out;
}
std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

TEST(ClassTextTest, ColumnsHaveCompleteNamesOrNumbers) {
  const std::vector<std::string> names = {"afrikaans", "brezhoneg", "castellano", "deutsch"};
  const std::string wide = class_text(report_of(4), names, "texts", 80);
  EXPECT_THAT(wide, HasSubstr("f1  texts\n"));
  EXPECT_THAT(class_text(report_of(4), names, "words", 80), HasSubstr("f1  words\n"));
  EXPECT_THAT(wide, HasSubstr("\nactual      predicted\n"));
  EXPECT_THAT(wide, HasSubstr("afrikaans   brezhoneg  castellano     deutsch\n"));
  EXPECT_THAT(wide, HasSubstr("\ndeutsch             30          31          32          33\n"));
  const std::string narrow = class_text(report_of(4), names, "texts", 50);
  EXPECT_THAT(narrow, AllOf(HasSubstr("actual        predicted, by class number\n"), HasSubstr("   0   1   2   3\n"),
                            HasSubstr("\n3 deutsch     30  31  32  33\n")));
  EXPECT_LE(widest(narrow), 50u);
  EXPECT_THAT(class_text(report_of(4), names, "texts", 24),
              HasSubstr("of 4 classes is wider than 24 columns: --json FILE"));
}

TEST(ClassTextTest, LongNamesAreCutBetweenCharacters) {
  const std::vector<std::string> names = {"\xc3\xa4" + std::string(28, 'x') + "\xc3\xb6zzzz", "b"};
  const std::string text = class_text(report_of(2), names, "texts", 200);
  EXPECT_THAT(text, AllOf(HasSubstr("\n\xc3\xa4" + std::string(28, 'x') + "  "), Not(HasSubstr("\xc3\xb6"))));
  EXPECT_THAT(text, Not(HasSubstr("\xc3 ")));
}

TEST(ClassTextTest, MetricsAreBrokenIntoLines) {
  runtime::ClassReport numbers = report_of(0);
  EXPECT_EQ(class_text(numbers, {}, "texts", 40),
            "accuracy 0.5000  f1 0.5000\nprecision 0.5000  recall 0.5000\nf1_micro 0.5000\n");
}

}  // namespace
}  // namespace strata::launcher
