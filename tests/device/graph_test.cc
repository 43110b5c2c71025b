#include "device/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "device/cpu/lane_impl.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::kDevice;

// Numbers in memory that the host and the twin's lanes can reach.
class Numbers {
 public:
  explicit Numbers(float x) : memory_(Arena::host(kCount * sizeof(float), kDevice)) { set(x); }
  View view() const { return {memory_.data(), kCount, DType::fp32}; }
  float operator[](std::size_t i) const { return view().as<float>()[i]; }
  void set(float x) const { std::fill_n(view().as<float>(), kCount, x); }

 private:
  static constexpr std::size_t kCount = 1000;
  Arena memory_;
};

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Graph::possible(kDevice)) GTEST_SKIP() << "lanes of the host cannot be recorded";
  }

  // c = a, moved by way of b in the other lane: every step needs the one before it.
  void pass_on() {
    cast(main_, a_.view(), b_.view());
    main_.record(there_);
    side_.wait(there_);
    cast(side_, b_.view(), c_.view());
    side_.record(back_);
    main_.wait(back_);
    cast(main_, c_.view(), d_.view());
  }
  void synchronize() {
    main_.synchronize();
    side_.synchronize();
  }

  AbortToken abort_;
  const Numbers a_{1}, b_{0}, c_{0}, d_{0};
  Event there_{kDevice, false}, back_{kDevice, false};
  Lane main_{"main", 1, 0, abort_, kDevice}, side_{"side", 1, 0, abort_, kDevice};
};

TEST_F(GraphTest, EachLaunchRunsTheRecordedWork) {
  const Graph graph(main_, [&] { pass_on(); });
  synchronize();
  EXPECT_EQ(d_[0], 0) << "recorded, not run";
  for (const float x : {3.0f, 5.0f}) {
    a_.set(x);
    graph.launch(main_);
    synchronize();
    EXPECT_EQ(d_[0], x);
    EXPECT_EQ(d_[999], x);
  }
}

TEST_F(GraphTest, ALaunchKeepsTheLanesOrder) {
  const Graph graph(main_, [&] { pass_on(); });
  const Numbers before(7), after(0);
  cast(main_, before.view(), a_.view());
  graph.launch(main_);
  cast(main_, d_.view(), after.view());
  synchronize();
  EXPECT_EQ(after[999], 7);
}

TEST_F(GraphTest, TheSameWorkRunsUnrecordedAfterwards) {
  const Graph graph(main_, [&] { pass_on(); });
  graph.launch(main_);
  synchronize();
  a_.set(9);
  pass_on();  // records its events again
  synchronize();
  EXPECT_EQ(d_[0], 9);
}

TEST_F(GraphTest, LanesThatAreNotJoinedAreRefused) {
  const auto record = [&] {
    return Graph(main_, [&] {
      main_.record(there_);
      side_.wait(there_);
      cast(side_, b_.view(), c_.view());
    });
  };
  EXPECT_THROW(record(), Error);
  pass_on();  // the lanes are as they were
  synchronize();
  EXPECT_EQ(d_[0], 1);
}

TEST_F(GraphTest, RefusesWorkThatCannotBeRecorded) {
  std::int64_t time = 0;
  const auto record = [&](const std::function<void()>& issue) {
    return Graph(main_, [&] {
      cast(main_, a_.view(), b_.view());
      issue();
    });
  };
  EXPECT_THROW(record([&] { main_.stamp(&time); }), Error);
  EXPECT_THROW(record([&] { cpu::submit(main_, [](cpu::Team&) {}); }), Error);
  Event told(kDevice);  // a host lane may wait for it
  EXPECT_THROW(record([&] { main_.record(told); }), Error);
  side_.record(back_);
  EXPECT_THROW(record([&] { main_.wait(back_); }), Error);
  side_.synchronize();
  Lane host("host", 1, 0, abort_);
  host.record(back_);
  EXPECT_THROW(record([&] { main_.wait(back_); }), Error);
  host.synchronize();  // pass_on() records the event in another lane
  pass_on();
  synchronize();
  EXPECT_EQ(d_[0], 1);
}

TEST(Graph, HostLanesCannotBeRecorded) {
  EXPECT_FALSE(Graph::possible({}));
}

TEST(EventDeathTest, TwoLanesRecordItAtOnce) {
  const auto record = [] {
    AbortToken abort;
    Event event;
    std::atomic<bool> gate = false;
    Lane slow("slow", 1, 0, abort), quick("quick", 1, 0, abort);
    cpu::submit(slow, [&gate](cpu::Team&) {
      while (!gate) std::this_thread::yield();
    });
    slow.record(event);
    quick.record(event);
  };
  EXPECT_DEATH(record(), "event.done == event.issued");
}

TEST(EventDeathTest, TheHostWaitsForOneThatIsNotForIt) {
  if (kDevice.kind == Kind::cpu) GTEST_SKIP() << "lanes of the CPU are the host's";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // CUDA does not work in a process that was forked
  const auto wait = [] {
    AbortToken abort;
    Event event(kDevice, false);
    Lane twin("twin", 1, 0, abort, kDevice), host("host", 1, 0, abort);
    twin.record(event);
    host.wait(event);
  };
  EXPECT_DEATH(wait(), "host_waits");
}

TEST(Event, HasPassedOnceTheHostLaneReachedIt) {
  AbortToken abort;
  Event event;
  EXPECT_TRUE(event.passed());
  std::atomic<bool> gate = false;
  Lane lane("lane", 1, 0, abort);
  cpu::submit(lane, [&gate](cpu::Team&) {
    while (!gate) std::this_thread::yield();
  });
  lane.record(event);
  EXPECT_FALSE(event.passed());
  gate = true;
  lane.synchronize();
  EXPECT_TRUE(event.passed());
}

TEST(Event, TheIssuingThreadWaitsForTheHostsLaneOrTheEndOfTheRun) {
  AbortToken abort;
  Event event;
  event.wait(abort);  // returns at once without a record
  std::atomic<bool> gate = false, opened = false;
  Lane lane("lane", 1, 0, abort);
  cpu::submit(lane, [&gate](cpu::Team&) {
    while (!gate) std::this_thread::yield();
  });
  lane.record(event);
  std::thread opening([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    gate = true;
  });
  event.wait(abort);
  EXPECT_TRUE(opened);
  opening.join();

  gate = false;
  cpu::submit(lane, [&gate](cpu::Team&) {
    while (!gate) std::this_thread::yield();
  });
  lane.record(event);
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    abort.set({0, "another rank failed"});
  });
  EXPECT_THROW(event.wait(abort), Aborted);
  gate = true;
  failing.join();
  EXPECT_THROW(lane.synchronize(), Aborted);
  EXPECT_TRUE(event.passed());
  EXPECT_THROW(event.wait(abort), Aborted) << "the work before the event was dropped";
}

}  // namespace
}  // namespace strata::device
