#include "launcher/screen/printable.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {
namespace {

TEST(PrintableTest, ControlCharactersAreMarked) {
  EXPECT_EQ(printable("a\x1b[2Jb\x07\r"), "a?[2Jb??");
  EXPECT_EQ(printable("two\twords of caf\u00e9 \u65e5"), "two\twords of caf\u00e9 \u65e5");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "?1m");
  EXPECT_EQ(printable("\xc2"), "\xc2");
  EXPECT_EQ(printable("\xc2\n", true), "\xc2\n");
}

// A name with a line break must not look like another message.
TEST(PrintableTest, IsOneLineUnlessLinesAreAllowed) {
  EXPECT_EQ(printable("a\nstrata: b\r\n"), "a\\nstrata: b?\\n");
  EXPECT_EQ(printable("fits with\n  --set x=1", true), "fits with\n  --set x=1");
}

TEST(PrintFailureTest, UnknownKeysHaveSeparateLines) {
  const auto printed = [](const std::string& text) {
    testing::internal::CaptureStderr();
    print_failure(text, Exit::usage);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed("a\nb"), "strata: a\\nb\n");
  EXPECT_EQ(printed("the recipe has 2" + std::string(runtime::kBeforeUnknownKeys) + "  a\n  b"),
            "strata: the recipe has 2 unknown keys (strata keys lists all):\n  a\n  b\n");
}

TEST(PrintableStreamTest, ControlCharactersOfAnyPieceAreReplaced) {
  std::ostringstream screen;
  {
    PrintableStream out(screen);
    out << "a\x1b[31m" << 5 << '\n' << "b\xc2";
    EXPECT_EQ(screen.str(), "a?[31m5\n") << "complete lines in one write";
    out << '\x9b' << "c\r";
  }
  EXPECT_EQ(screen.str(), "a?[31m5\nb?c?");
}

}  // namespace
}  // namespace strata::launcher
