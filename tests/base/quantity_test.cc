#include "base/quantity.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace strata {
namespace {

TEST(Quantity, AmountsAsPeopleSayThem) {
  EXPECT_EQ(count_text(12'345), "12.3K");
  EXPECT_EQ(count_text(124'439'808), "124.4M");
  EXPECT_EQ(count_text(7'615'616'512), "7.62B");
  EXPECT_EQ(bytes_text(0), "0");
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
}

}  // namespace
}  // namespace strata
