#include "launcher/screen/printable_stream.h"

#include <gtest/gtest.h>

#include <sstream>

namespace strata::launcher {
namespace {

TEST(PrintableStreamTest, ControlCharactersOfAnyPieceAreReplaced) {
  std::ostringstream screen;
  {
    PrintableStream out(screen);
    out << "a\x1b[31m" << 5 << '\n' << "b\xc2";
    EXPECT_EQ(screen.str(), "a?[31m5\n") << "whole lines at once";
    out << '\x9b' << "c\r";
  }
  EXPECT_EQ(screen.str(), "a?[31m5\nb?c?");
}

}  // namespace
}  // namespace strata::launcher
