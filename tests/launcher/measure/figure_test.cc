#include "launcher/measure/figure.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace strata::launcher {
namespace {

TEST(Figure, TheMedianOfTheSpreadsIsTheMachines) {
  EXPECT_EQ(median_spread({}), std::nullopt);
  EXPECT_EQ(median_spread({{"triad", "GB/s", 20, 0.02}}), 0.02);
  EXPECT_EQ(median_spread({{"norm", "us", 4, 2.65}, {"triad", "GB/s", 20, 0.02}, {"sum", "GB/s", 3, 0.21}}), 0.21);
}

TEST(Figure, CommentsNameThoseThatAreWide) {
  EXPECT_EQ(wide_spreads({{"triad", "GB/s", 20, kWideSpread}}), "");
  EXPECT_EQ(wide_spreads({{"triad", "GB/s", 20, 0.02}, {"norm", "us", 4, 2.65}}),
            "\n# Measured with a wide spread, as of a machine that does something else meanwhile:\n"
            "# norm: 4 us, +-265%\n");
}

}  // namespace
}  // namespace strata::launcher
