#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/shared_memory.h"
#include "device/memory.h"

namespace strata::comm {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Signal, WakesASleepingRank) {
  // A sleep that no rank ends takes 50 ms. The best of several tries counts, because the machine may be busy.
  auto best = Clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    Signal signal;
    Clock::time_point woken;
    std::thread sleeper([&] {
      while (!signal.reached(1)) signal.sleep(1);
      woken = Clock::now();
    });
    while (signal.sleepers.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const auto raised = Clock::now();
    signal.raise(1);
    sleeper.join();
    best = std::min(best, woken - raised);
  }
  EXPECT_LT(best, std::chrono::milliseconds(20));
}

TEST(Signal, ASleepEndsByItselfSoThatFailuresAreSeen) {
  Signal signal;
  const auto start = Clock::now();
  signal.sleep(1);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
}

TEST(Signal, CountsBeyondTheWraparound) {
  Signal signal;
  signal.raise(0xffffffffu);
  EXPECT_TRUE(signal.reached(0xffffffffu));
  EXPECT_FALSE(signal.reached(0));
  signal.raise(0);
  EXPECT_TRUE(signal.reached(0xffffffffu));
  EXPECT_TRUE(signal.spin(0));
}

TEST(ControlBlock, TheFirstFailureWinsAndOthersSeeIt) {
  const device::Arena memory(ControlBlock::bytes(3));
  const auto mine = ControlBlock::construct(memory.data(), 3);
  const auto other = ControlBlock::attach(memory.data(), 3);
  EXPECT_FALSE(other.failed());
  mine.report_failure({1, "first", Exit::corrupt, false});
  other.report_failure({2, std::string(5000, 'x')});
  EXPECT_TRUE(other.failed());
  EXPECT_EQ(other.failure().rank, 1);
  EXPECT_EQ(other.failure().cause, "first");
  EXPECT_EQ(other.failure().code, Exit::corrupt);
  EXPECT_FALSE(other.failure().self_reported);
  mine.leave(2);
  EXPECT_TRUE(other.left(2));
  EXPECT_FALSE(other.left(0));
}

TEST(ControlBlock, TruncatesALongCause) {
  const device::Arena memory(ControlBlock::bytes(1));
  const auto block = ControlBlock::construct(memory.data(), 1);
  block.report_failure({0, std::string(5000, 'x')});
  EXPECT_EQ(block.failure().cause, std::string(1023, 'x'));
}

}  // namespace
}  // namespace strata::comm
