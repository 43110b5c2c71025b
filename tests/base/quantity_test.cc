#include "base/quantity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>

namespace strata {
namespace {

TEST(Quantity, FormatsAmountsForPeople) {
  EXPECT_EQ(count_text(64), "64");
  EXPECT_EQ(count_text(1'000), "1.0K");
  EXPECT_EQ(count_text(12'345), "12.3K");
  EXPECT_EQ(count_text(124'439'808), "124.4M");
  EXPECT_EQ(count_text(7'615'616'512), "7.62B");
  EXPECT_EQ(bytes_text(0), "0");
  EXPECT_EQ(bytes_text(1), "1 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::size_t{3} << 29), "1.50 GiB");
  // Where the unit changes.
  EXPECT_EQ(count_text(999'949), "999.9K");
  EXPECT_EQ(count_text(1'000'000), "1.0M");
  EXPECT_EQ(count_text(1'000'000'000), "1.00B");
  EXPECT_EQ(bytes_text(1 << 20), "1.0 MiB");
  EXPECT_EQ(bytes_text(std::size_t{1} << 30), "1.00 GiB");
}

TEST(Quantity, NumbersAndTimes) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3599), "59m59s");
  EXPECT_EQ(duration_text(3600), "1h00m");
  EXPECT_EQ(duration_text(95 * 3600), "95h00m");
  EXPECT_EQ(duration_text(100 * 3600), "4d04h");
}

TEST(Quantity, LargeAmountsHaveLargeUnits) {
  EXPECT_EQ(bytes_text(std::size_t{1023} << 30), "1023.00 GiB");
  EXPECT_EQ(bytes_text(std::size_t{1} << 40), "1.00 TiB");
  EXPECT_EQ(bytes_text(std::size_t{63596} << 30), "62.11 TiB");
  EXPECT_EQ(step_time_text(0.5), "0.5 ms");
  EXPECT_EQ(step_time_text(301.2), "301.2 ms");
  EXPECT_EQ(step_time_text(45'300), "45.3 s");
  EXPECT_EQ(step_time_text(2'956'182.6), "49m16s");
  EXPECT_EQ(tokens_rate_text(0), "0 tokens/s");
  EXPECT_EQ(tokens_rate_text(6800.4), "6800 tokens/s");
  EXPECT_EQ(tokens_rate_text(4.24), "4.2 tokens/s");
  EXPECT_EQ(tokens_rate_text(0.25), "900 tokens/hour");
  EXPECT_EQ(tokens_rate_text(0.0004), "34.6 tokens/day");
}

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
}  // namespace strata
