#include "runtime/recipe/value.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

TEST(ValueTest, ParsesSizes) {
  EXPECT_EQ(parse_size("1B"), 1u);
  EXPECT_EQ(parse_size("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("512MiB"), std::uint64_t{512} << 20);
  EXPECT_EQ(parse_size("1.5 GB"), 1'500'000'000u);
  for (const char* bad : {"", "GiB", "2", "2G", "2gib", "-2GiB", "0.1B", "1e400GiB", "nanB", "infB", "2GiBx"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace strata::runtime
