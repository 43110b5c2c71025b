#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/recipe/keys/key.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ReportKeysTest, StepsToTrace) {
  const auto steps = [](const std::string& value) {
    return steps_text(recipe_with({"report.trace=t.json", "report.trace_steps=" + value}).report.trace_steps);
  };
  EXPECT_EQ(steps("3"), "3");
  EXPECT_EQ(steps("3-3"), "3");
  EXPECT_EQ(steps("3-5"), "\"3-5\"");
  EXPECT_EQ(steps("[9, \"3-5\", 6]"), "[\"3-5\", 6, 9]");
  for (const char* bad : {"0", "0-3", "5-3", "3-", "-3", "3-5-7", "3.5", "last", "true", "[3, 3]", "[\"3-5\", 5]",
                          "[[3]]", "[]", "99999999999999999999", "1-99999999999999999999"})
    EXPECT_FAILURE(recipe_with({"report.trace=t.json", std::string("report.trace_steps=") + bad}), Exit::usage,
                   AllOf(HasSubstr("report.trace_steps"), HasSubstr("a step from 1")));
  EXPECT_FAILURE(recipe_with({"report.trace_steps=3"}), Exit::usage, HasSubstr("needs report.trace"));
  EXPECT_TRUE(notes_with({"report.trace=t.json", "report.trace_steps=3-8", "training.max_steps=8"}).empty());
  EXPECT_THAT(notes_with({"report.trace=t.json", "report.trace_steps=3-8", "training.max_steps=7"}),
              ElementsAre(HasSubstr("training.max_steps is 7")));
}

}  // namespace
}  // namespace strata::runtime
