#include "launcher/printable.h"

#include <gtest/gtest.h>

namespace strata::launcher {
namespace {

TEST(PrintableTest, ControlCharactersAreMarked) {
  EXPECT_EQ(printable("a\x1b[2Jb\x07\r"), "a?[2Jb??");
  EXPECT_EQ(printable("two\nlines\tof caf\u00e9 \u65e5"), "two\nlines\tof caf\u00e9 \u65e5");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "?1m");
  EXPECT_EQ(printable("\xc2"), "\xc2");
  EXPECT_EQ(printable("\xc2\n"), "\xc2\n");
}

}  // namespace
}  // namespace strata::launcher
