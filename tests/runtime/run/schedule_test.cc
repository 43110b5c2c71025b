#include "runtime/run/schedule.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

double lr(Decay name, std::int64_t warmup, double ratio, std::int64_t max_steps, std::int64_t step) {
  return learning_rate({.name = name, .warmup_steps = warmup, .min_lr_ratio = ratio}, 2.0, max_steps, step);
}

TEST(ScheduleTest, WarmsUpLinearly) {
  for (const Decay name : {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd}) {
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 1), 0.5);
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 3), 1.5);
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 4), 2.0);
    EXPECT_DOUBLE_EQ(lr(name, 100, 0.1, 10, 10), 0.2);  // a run that ends inside its warm-up
  }
}

TEST(ScheduleTest, DecaysToTheRatioAtTheLastStep) {
  EXPECT_DOUBLE_EQ(lr(Decay::constant, 4, 0.1, 10, 10), 2.0);
  for (const Decay name : {Decay::linear, Decay::cosine, Decay::wsd}) EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 10), 0.2);
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 0, 0.0, 1, 1), 0.0);
}

TEST(ScheduleTest, InBetween) {
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 0, 0.1, 100, 50), 1.1);   // 2 * (1 - 0.9 / 2)
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 20, 0.0, 100, 40), 1.5);  // t = 1/4
  EXPECT_DOUBLE_EQ(lr(Decay::cosine, 0, 0.1, 100, 50), 1.1);   // the half is where cos is 0
  EXPECT_DOUBLE_EQ(lr(Decay::cosine, 0, 0.0, 3, 1), 1.5);      // cos(60 degrees) = 1/2
  EXPECT_DOUBLE_EQ(lr(Decay::wsd, 0, 0.1, 100, 80), 2.0);
  EXPECT_DOUBLE_EQ(lr(Decay::wsd, 0, 0.1, 100, 90), 1.1);  // the middle of the last fifth
}

}  // namespace
}  // namespace strata::runtime
