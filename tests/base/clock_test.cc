#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace strata {
namespace {

TEST(Clock, CountsSecondsAndFractionsLikeTheSystemClock) {
  timespec before{}, after{};
  ASSERT_EQ(clock_gettime(CLOCK_REALTIME, &before), 0);
  const double now = seconds_since_epoch();
  ASSERT_EQ(clock_gettime(CLOCK_REALTIME, &after), 0);
  const auto seconds = [](const timespec& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  // A double of this size is good to 2^-22 s.
  EXPECT_GE(now, seconds(before) - 1e-6);
  EXPECT_LE(now, seconds(after) + 1e-6);
}

}  // namespace
}  // namespace strata
