#include "runtime/run/loss_scaler.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

TEST(LossScalerTest, GrowsAndBacksOffAsGradScaler) {
  LossScaler scaler(true, {.initial_scale = 1024, .growth_interval = 3});
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(true);  // starts the count anew
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScalerTest, NeverGrowsToInfinity) {
  LossScaler scaler(true, {.initial_scale = 0x1p127, .growth_interval = 1});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127f);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
}

TEST(LossScalerTest, IsExhaustedWhereItHasNoInverse) {
  LossScaler scaler(true, {.initial_scale = 0x1p-125});
  scaler.update(true);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(true);
  EXPECT_TRUE(scaler.exhausted());
}

TEST(LossScalerTest, OffInOtherPrecisions) {
  LossScaler scaler(false, {});
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScalerTest, ResumesWhereItWas) {
  LossScaler first(true, {.initial_scale = 8, .growth_interval = 2}), second(true, {.growth_interval = 2});
  first.update(false);
  second.restore(first.state());
  first.update(false);
  second.update(false);
  EXPECT_EQ(second.scale(), 16);
  EXPECT_EQ(first.state(), second.state());
}

}  // namespace
}  // namespace strata::runtime
