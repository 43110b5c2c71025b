#include "device/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/cpu/lane_impl.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::kDevice;

// Numbers that the twin's lanes and host lanes both read and write.
struct Shared {
  explicit Shared(std::size_t size = 1024) : memory(Arena::host(size * sizeof(float), kDevice)), count(size) {
    for (std::size_t i = 0; i < size; ++i) floats()[i] = 0;
  }
  View view() const { return {memory.data(), count, DType::fp32}; }
  float* floats() const { return reinterpret_cast<float*>(memory.data()); }
  Arena memory;
  std::size_t count;
};

// Adds 1 to every number, as the host.
void add_one(Lane& lane, const Shared& x) {
  cpu::submit(lane, [data = x.floats(), n = x.count](cpu::Team&) {
    for (std::size_t i = 0; i < n; ++i) data[i] += 1;
  });
}

// Work of a host lane that runs until the test opens the gate, or the run is aborted.
void hold(Lane& lane, const std::atomic<bool>& gate) {
  cpu::submit(lane, [&gate, token = &lane.abort()](cpu::Team&) {
    for (; !gate; std::this_thread::sleep_for(std::chrono::microseconds(100))) token->throw_if_set();
  });
}

TEST(Lane, HostWorkTakesItsTurn) {
  AbortToken abort;
  const Shared x, doubled;
  Lane lane("lane", 1, 0, abort, kDevice);
  for (int turn = 0; turn < 20; ++turn) {
    cast(lane, x.view(), doubled.view());
    add(lane, x.view(), doubled.view());
    cast(lane, doubled.view(), x.view());
    add_one(lane, x);
  }
  lane.synchronize();
  EXPECT_EQ(x.floats()[0], 0x1p20f - 1);  // x = 2 x + 1, twenty times
  EXPECT_EQ(x.floats()[1023], 0x1p20f - 1);
}

TEST(Lane, EventsOrderTheTwinAndTheHost) {
  AbortToken abort;
  const Shared x, copy;
  Event there(kDevice), back(kDevice);
  Lane twin("twin", 1, 0, abort, kDevice), host("host", 1, 0, abort);
  for (int turn = 0; turn < 100; ++turn) {  // nothing waits in between: both lanes lag far behind the issuing thread
    twin.wait(back);
    cast(twin, x.view(), copy.view());
    add(twin, copy.view(), x.view());
    twin.record(there);
    host.wait(there);
    cpu::submit(host, [data = x.floats(), n = x.count](cpu::Team&) {
      for (std::size_t i = 0; i < n; ++i) data[i] = data[i] / 2 + 1;
    });
    host.record(back);
  }
  twin.synchronize();
  host.synchronize();
  EXPECT_EQ(x.floats()[0], 100);
  EXPECT_EQ(x.floats()[1023], 100);
}

TEST(Lane, EventsOrderLanesOfTheTwin) {
  AbortToken abort;
  const Shared x, copy;
  Event there(kDevice), back(kDevice);
  Lane one("one", 1, 0, abort, kDevice), two("two", 1, 0, abort, kDevice);
  x.floats()[0] = 1;
  for (int turn = 0; turn < 10; ++turn) {
    one.wait(back);
    cast(one, x.view(), copy.view());
    one.record(there);
    two.wait(there);
    add(two, copy.view(), x.view());
    two.record(back);
  }
  two.synchronize();
  EXPECT_EQ(x.floats()[0], 1024);
}

// A wait must ignore records made after it was issued. Otherwise this one would last forever.
TEST(Lane, WaitRefersToTheRecordBeforeIt) {
  AbortToken abort;
  const Shared x;
  Event first(kDevice), second(kDevice);
  std::atomic<bool> gate = false;
  Lane twin("twin", 1, 0, abort, kDevice), host("host", 1, 0, abort);
  for (int turn = 0; turn < 3; ++turn) {
    gate = false;
    hold(host, gate);
    twin.record(first);
    host.wait(first);
    host.record(second);
    twin.wait(second);
    twin.record(first);
    gate = true;
    twin.synchronize();
    host.synchronize();
  }
}

TEST(Lane, AnEventWithoutARecordDelaysNobody) {
  AbortToken abort;
  const Event never(kDevice);
  Lane twin("twin", 1, 0, abort, kDevice), host("host", 1, 0, abort);
  twin.wait(never);
  host.wait(never);
  twin.synchronize();
  host.synchronize();
}

TEST(Lane, StampsAreTimesOfTheSteadyClockInOrder) {
  using Clock = std::chrono::steady_clock;
  AbortToken abort;
  const Shared x(1 << 20), y(1 << 20);
  Lane lane("lane", 1, 0, abort, kDevice);
  for (int step = 0; step < 2; ++step) {
    std::int64_t begin = 0, middle = 0, end = 0;
    const std::int64_t before = Clock::now().time_since_epoch().count();
    lane.stamp(&begin);
    cast(lane, x.view(), y.view());
    lane.stamp(&middle);
    add(lane, x.view(), y.view());
    lane.stamp(&end);
    lane.synchronize();
    const std::int64_t after = Clock::now().time_since_epoch().count();
    EXPECT_LE(before - 1000, begin);  // a device's clock is known to about a microsecond
    EXPECT_LT(begin, middle);
    EXPECT_LT(middle, end);
    EXPECT_LE(end, after + 1000);
  }
}

TEST(Lane, AbortEndsAWaitForTheHost) {
  AbortToken abort;
  const Shared x;
  const std::atomic<bool> gate = false;  // never opens
  Event event(kDevice);
  Lane host("host", 1, 0, abort), twin("twin", 1, 0, abort, kDevice);
  add(twin, x.view(), x.view());  // a kernel's first call may wait for all that was queued before
  twin.synchronize();
  hold(host, gate);
  host.record(event);
  twin.wait(event);
  add(twin, x.view(), x.view());
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    abort.set({0, "another rank failed"});
  });
  EXPECT_THROW(twin.synchronize(), Aborted);
  failing.join();
}

// No work completes, and more is issued than a lane's queue can hold.
TEST(Lane, AbortEndsTheIssuersWaitForQueueSpace) {
  AbortToken abort;
  const Shared x, y;
  const std::atomic<bool> gate = false;
  Event event(kDevice);
  Lane host("host", 1, 0, abort), twin("twin", 1, 0, abort, kDevice);
  hold(host, gate);
  host.record(event);
  twin.wait(event);
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    abort.set({0, "another rank failed"});
  });
  for (int i = 0; i < 3000; ++i) cast(twin, x.view(), y.view());
  EXPECT_THROW(twin.synchronize(), Aborted);
  failing.join();
}

TEST(Lane, AbortEndsHostWorkAndLanesAreDestroyed) {
  AbortToken abort;
  const Shared x;
  const std::atomic<bool> gate = false;
  Event event(kDevice);
  {
    Lane host("host", 1, 0, abort), twin("twin", 1, 0, abort, kDevice);
    hold(twin, gate);
    add(twin, x.view(), x.view());
    twin.record(event);
    host.wait(event);
    abort.set({0, "another rank failed"});
  }  // without a synchronize(), as where an exception unwinds
}

TEST(Lane, ExceptionOfHostWorkIsTheCauseOfTheAbort) {
  AbortToken abort;
  Lane lane("lane", 1, 3, abort, kDevice);
  cpu::submit(lane, [](cpu::Team&) { fail(Exit::corrupt, "a block is damaged"); });
  EXPECT_THROW(lane.synchronize(), Aborted);
  EXPECT_EQ(abort.failure().rank, 3);
  EXPECT_EQ(abort.failure().cause, "a block is damaged");
  EXPECT_EQ(abort.failure().code, Exit::corrupt);
}

// A GPU's streams may be waiting for it.
TEST(Lane, RecordsOfTheHostAreReachedEvenAfterAnAbort) {
  AbortToken abort;
  Event event;
  bool ran = false;
  {
    Lane host("host", 1, 0, abort);
    abort.set({0, "failed"});
    cpu::submit(host, [&ran](cpu::Team&) { ran = true; });
    host.record(event);
    EXPECT_THROW(host.synchronize(), Aborted);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(event.state().done, 1u);
}

}  // namespace
}  // namespace strata::device
