#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace strata {
namespace {

TEST(Number, IsTheWholeText) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("1e3"), 1000);
  EXPECT_EQ(parse_number<unsigned>("ff", 16), 255u);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x1", "x"}) EXPECT_EQ(parse_number<int>(text), std::nullopt);
}

TEST(Number, Fits) {
  EXPECT_EQ(parse_number<std::int8_t>("127"), 127);
  EXPECT_EQ(parse_number<std::int8_t>("128"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e999"), std::nullopt);
}

}  // namespace
}  // namespace strata
