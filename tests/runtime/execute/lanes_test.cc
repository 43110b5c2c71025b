#include "runtime/execute/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

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

struct Step {
  StepPlan plan{};

  int add(TaskKind kind, LaneId lane, std::vector<int> waits, int unit = 0) {
    Task& task = plan.tasks.emplace_back();
    task.kind = kind;
    task.lane = lane;
    task.unit = unit;
    task.border = unit < 0;
    task.waits = std::move(waits);
    return static_cast<int>(plan.tasks.size()) - 1;
  }
};
bool of(const std::array<bool, kLanes>& lanes, LaneId lane) {
  return lanes[static_cast<std::size_t>(lane)];
}

// The host reads when the ranks agree. The update and its uploads continue during the next step.
TEST(LaneBorders, WhatTheHostDoesNotWaitForGoesOn) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int upload = step.add(TaskKind::upload, LaneId::upload, {write});
  const int forward = step.add(TaskKind::forward, LaneId::compute, {upload});
  const int reduce = step.add(TaskKind::reduce, LaneId::reduce, {forward});
  const int consensus = step.add(TaskKind::consensus, LaneId::reduce, {reduce}, -1);
  step.add(TaskKind::host_read, LaneId::host, {consensus}, -1);
  const int more = step.add(TaskKind::upload, LaneId::upload, {consensus});
  step.add(TaskKind::update, LaneId::compute, {consensus, more});
  const LaneBorders borders = lane_borders(step.plan);
  EXPECT_TRUE(of(borders.continues, LaneId::compute));
  EXPECT_TRUE(of(borders.continues, LaneId::upload));
  EXPECT_FALSE(of(borders.continues, LaneId::reduce)) << "the consensus is its last task";
  EXPECT_FALSE(of(borders.continues, LaneId::gather)) << "it has none";
}

// When a task has ended, so have earlier tasks in its lane, and the tasks for which those waited.
TEST(LaneBorders, WaitsReachThroughLanes) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int gather = step.add(TaskKind::gather, LaneId::gather, {write});
  step.add(TaskKind::forward, LaneId::compute, {gather});
  const int backward = step.add(TaskKind::backward, LaneId::compute, {});
  step.add(TaskKind::host_read, LaneId::host, {backward}, -1);
  const LaneBorders borders = lane_borders(step.plan);
  EXPECT_FALSE(of(borders.continues, LaneId::compute));
  EXPECT_FALSE(of(borders.continues, LaneId::gather)) << "a task before the one that the host waits for waited for it";
}

// Flags that tell a GPU about the host's work are recycled when the lane is waited for.
TEST(LaneBorders, WhatWaitsForAHostsLaneIsWaitedFor) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int update = step.add(TaskKind::update, LaneId::host_compute, {write});
  step.add(TaskKind::upload, LaneId::upload, {update});
  step.add(TaskKind::host_read, LaneId::host, {}, -1);
  const LaneBorders borders = lane_borders(step.plan);
  EXPECT_FALSE(of(borders.continues, LaneId::upload));
  EXPECT_TRUE(of(borders.continues, LaneId::host_compute));
}

// A wait for the task itself or a later one refers to the previous step, which has ended if necessary.
TEST(LaneBorders, WaitsForTheStepBeforeReachNothing) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int forward = step.add(TaskKind::forward, LaneId::compute, {write, 4});
  step.add(TaskKind::host_read, LaneId::host, {forward}, -1);
  step.add(TaskKind::gather, LaneId::gather, {forward});
  step.add(TaskKind::gather, LaneId::gather, {forward});
  EXPECT_TRUE(of(lane_borders(step.plan).continues, LaneId::gather));
}

TEST(LaneBorders, TasksBeforeTheHostWritesBeginEarly) {
  Step step;
  step.add(TaskKind::gather, LaneId::gather, {});
  step.add(TaskKind::host_write, LaneId::host, {}, -1);
  step.add(TaskKind::forward, LaneId::compute, {});
  const LaneBorders borders = lane_borders(step.plan);
  EXPECT_TRUE(of(borders.begins_early, LaneId::gather));
  EXPECT_FALSE(of(borders.begins_early, LaneId::compute));
}

}  // namespace
}  // namespace strata::runtime
