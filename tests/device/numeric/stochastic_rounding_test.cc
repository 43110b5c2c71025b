#include <gtest/gtest.h>

#include <cmath>

#include "device/numeric/dtype.h"

namespace strata::device {
namespace {

// Over all 65,536 random numbers, only the two neighbours occur, and their mean is the number itself.
TEST(StochasticRounding, TheMeanIsTheNumber) {
  for (const float x : {1.0f, 1.001f, -3.14159f, 1e-30f, -1e-40f, 65504.3f, 0.0f, -0.0f, 3.1e-41f}) {
    double mean = 0;
    const float below = to_float(bf16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)});
    const float above = to_float(bf16{static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + 0xffffu) >> 16)});
    for (std::uint32_t random = 0; random < 65536; ++random) {
      const float rounded = to_float(round_stochastically(x, static_cast<std::uint16_t>(random)));
      ASSERT_TRUE(rounded == below || rounded == above) << x;
      mean += static_cast<double>(rounded) / 65536;
    }
    EXPECT_NEAR(mean, static_cast<double>(x), std::abs(static_cast<double>(above) - static_cast<double>(below)) / 65536)
        << x;
  }
}

TEST(StochasticRounding, KeepsNonFiniteValues) {
  for (const std::uint16_t random : {0, 1, 0x8000, 0xffff}) {
    EXPECT_EQ(to_float(round_stochastically(INFINITY, random)), INFINITY);
    EXPECT_EQ(to_float(round_stochastically(-INFINITY, random)), -INFINITY);
    for (const std::uint32_t nan : {0x7f800001u, 0xffffffffu, 0x7fc00000u})
      EXPECT_TRUE(std::isnan(to_float(round_stochastically(std::bit_cast<float>(nan), random))));
  }
}

}  // namespace
}  // namespace strata::device
