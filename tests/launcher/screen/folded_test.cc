#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/screen/printable.h"

namespace strata::launcher {
namespace {

TEST(Folded, BreaksAtSpacesAndIndentsContinuations) {
  EXPECT_EQ(folded("one two three", 2, 7), "one two\n  three");
  EXPECT_EQ(folded("one two three", 0, 100), "one two three");
  EXPECT_EQ(folded("one /a/long/path/that/stays two", 2, 10), "one\n  /a/long/path/that/stays\n  two");
  EXPECT_EQ(folded("one two\nthree four\n", 1, 5), "one\n two\nthree\n four\n");
  EXPECT_EQ(folded("", 2, 5), "");
}

TEST(Folded, NotesStayWithinTheColumns) {
  testing::internal::CaptureStderr();
  note_folded(std::string(60, 'a') + " " + std::string(31, 'b') + " c");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "strata: " + std::string(60, 'a') + " " + std::string(31, 'b') + "\nstrata:   c\n");
}

TEST(Table, AlignsColumns) {
  const std::vector<std::vector<std::string>> rows = {{"a", "peak", "x"}, {"RAM", "1.5", "1234"}};
  EXPECT_EQ(table(rows), "a    peak     x\nRAM   1.5  1234\n");
  EXPECT_EQ(table(rows, 15), "a    peak     x\nRAM   1.5  1234\n");
  EXPECT_EQ(table(rows, 14), "a   peak    x\nRAM  1.5 1234\n");
}

}  // namespace
}  // namespace strata::launcher
