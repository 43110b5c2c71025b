#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, OfTheRfcsExamples) {
  std::string rising, falling;
  for (char c = 0; c < 32; ++c) {
    rising += c;
    falling += static_cast<char>(31 - c);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

TEST(Crc32c, OfTheUsualCheckAndOfNothing) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

}  // namespace
}  // namespace strata
