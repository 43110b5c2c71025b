#include "launcher/screen/value_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strata::launcher {
namespace {

TEST(ValueText, HasDigitsAfterThePointOrAPowerOfTen) {
  EXPECT_EQ(value_text(3.29577, 4), "3.2958");
  EXPECT_EQ(value_text(-0.5, 3), "-0.500");
  EXPECT_EQ(value_text(0, 2), "0.00");
  EXPECT_EQ(value_text(999999999, 1), "999999999.0");
  EXPECT_EQ(value_text(1e9, 4), "1.000e+09");
  EXPECT_EQ(value_text(-1e9, 4), "-1.000e+09");
  EXPECT_EQ(value_text(2353637358524383314581972057939852451880923824128.0, 2), "2.354e+48");
  EXPECT_EQ(value_text(std::numeric_limits<float>::max(), 4), "3.403e+38");
  EXPECT_EQ(value_text(std::numeric_limits<double>::infinity(), 4), "inf");
  EXPECT_EQ(value_text(std::nan(""), 4), "nan");
}

}  // namespace
}  // namespace strata::launcher
