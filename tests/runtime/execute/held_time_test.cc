#include "runtime/execute/held_time.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

TEST(HeldTime, CountsATasksFirstWaitForACheckpoint) {
  HeldTime held(3);
  EXPECT_EQ(held.of_wait(1), nullptr) << "no checkpoint has begun";
  held.begin();
  Span* const first = held.of_wait(1);
  Span* const second = held.of_wait(2);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(held.of_wait(1), nullptr) << "the task it waited for was read";
  *first = {1'000'000, 4'000'000};
  *second = {2'000'000, 2'500'000};
  EXPECT_EQ(held.ms(), 0) << "the times may be missing before lanes have been waited for";
  held.add_up();
  EXPECT_DOUBLE_EQ(held.ms(), 3.5);
  held.add_up();
  EXPECT_DOUBLE_EQ(held.ms(), 3.5) << "once each";
}

TEST(HeldTime, AddsUpOverCheckpoints) {
  HeldTime held(1);
  for (int i = 0; i < 2; ++i) {
    held.begin();
    *held.of_wait(0) = {0, 2'000'000};
    held.add_up();
  }
  EXPECT_DOUBLE_EQ(held.ms(), 4);
  held.begin();  // a wait that was still running when the run ended
  held.of_wait(0)->begin = 9'000'000;
  held.add_up();
  EXPECT_DOUBLE_EQ(held.ms(), 4);
}

}  // namespace
}  // namespace strata::runtime
