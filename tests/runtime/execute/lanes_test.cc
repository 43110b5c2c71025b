#include "runtime/execute/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/host_work.h"
#include "tests/comm/run_threads.h"

namespace strata::runtime {
namespace {

StepPlan plan_with(LaneId lane) {
  StepPlan plan{};
  for (const LaneId each : {LaneId::host, lane}) {
    Task& task = plan.tasks.emplace_back();
    task.lane = each;
  }
  return plan;
}

TEST(Queues, HaveTheLanesThatThePlanUses) {
  const auto world = comm::solo_world();
  const Queues queues(plan_with(LaneId::host_compute), *world, 3);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const auto lane = static_cast<LaneId>(i);
    const bool there =
        lane == LaneId::compute || lane == LaneId::gather || lane == LaneId::reduce || lane == LaneId::host_compute;
    EXPECT_EQ(queues.lanes[i] != nullptr, there) << kLaneNames[i];
    if (!there) continue;
    const bool computes = lane == LaneId::compute || lane == LaneId::host_compute;
    EXPECT_EQ(queues.of(lane).threads(), computes ? 3 : 1) << kLaneNames[i];
  }
}

// settle() does not wait for a checkpoint's remaining work.
TEST(Queues, SettleButForACheckpoint) {
  const auto world = comm::solo_world();
  const Queues queues(plan_with(LaneId::checkpoint), *world, 1);
  std::atomic<bool> may_end{false}, ended{false}, ran{false};
  comm::host_work(queues.of(LaneId::checkpoint), [&](device::cpu::Team&) {
    for (int ms = 0; !may_end && ms < 10'000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended = true;
  });
  comm::host_work(queues.of(LaneId::gather), [&](device::cpu::Team&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ran = true;
  });
  queues.settle();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(ended);
  may_end = true;
  queues.of(LaneId::checkpoint).synchronize();
}

TEST(Queues, SentIsThatOfBothCommunicators) {
  comm::run_threads(2, [&](comm::World& world) {
    const Queues queues(plan_with(LaneId::compute), world, 1);
    const device::Arena memory = world.allocate(3 * 4096, {});
    std::memset(memory.data(), 0, 3 * 4096);
    queues.gather->all_gather({2048, 0, 4096}, memory.data() + world.rank() * 2048, memory.data());
    queues.over().gradients.exchange(memory.data() + 4096, 512, memory.data() + 8192);
    queues.settle();
    EXPECT_EQ(queues.sent().all_gather, 2048u);
    EXPECT_EQ(queues.sent().consensus, 512u);
    EXPECT_EQ(queues.sent().total(), 2560u);
  });
}

}  // namespace
}  // namespace strata::runtime
