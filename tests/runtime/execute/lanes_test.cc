#include "runtime/execute/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/host_work.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/tiny_job.h"

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

// synchronize() does not wait for a checkpoint's remaining work.
TEST(Queues, SynchronizeWithoutWaitingForACheckpoint) {
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
  queues.synchronize();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(ended);
  may_end = true;
  queues.of(LaneId::checkpoint).synchronize();
}

TEST(Queues, CountBytesOfBothCommunicators) {
  comm::run_threads(2, [&](comm::World& world) {
    const Queues queues(plan_with(LaneId::compute), world, 1);
    const device::Arena memory = world.allocate(3 * 4096, {});
    std::memset(memory.data(), 0, 3 * 4096);
    queues.gather->all_gather({2048, 0, 4096}, memory.data() + world.rank() * 2048, memory.data());
    queues.communicators().gradients.exchange(memory.data() + 4096, 512, memory.data() + 8192);
    queues.synchronize();
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
    task.boundary = unit < 0;
    task.waits = std::move(waits);
    return static_cast<int>(plan.tasks.size()) - 1;
  }
};
bool of(const std::array<bool, kLanes>& lanes, LaneId lane) {
  return lanes[static_cast<std::size_t>(lane)];
}

// The host reads as soon as the ranks have agreed. The update and its uploads continue during the next step.
TEST(LaneBoundaries, TasksThatTheHostDoesNotAwaitContinue) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int upload = step.add(TaskKind::upload, LaneId::upload, {write});
  const int forward = step.add(TaskKind::forward, LaneId::compute, {upload});
  const int reduce = step.add(TaskKind::reduce, LaneId::reduce, {forward});
  const int consensus = step.add(TaskKind::consensus, LaneId::reduce, {reduce}, -1);
  step.add(TaskKind::host_read, LaneId::host, {consensus}, -1);
  const int more = step.add(TaskKind::upload, LaneId::upload, {consensus});
  step.add(TaskKind::update, LaneId::compute, {consensus, more});
  const LaneBoundaries boundaries = lane_boundaries(step.plan);
  EXPECT_TRUE(of(boundaries.continues, LaneId::compute));
  EXPECT_TRUE(of(boundaries.continues, LaneId::upload));
  EXPECT_FALSE(of(boundaries.continues, LaneId::reduce)) << "the consensus is its last task";
  EXPECT_FALSE(of(boundaries.continues, LaneId::gather)) << "it has none";
}

// When a task has ended, so have earlier tasks in its lane, and the tasks for which those waited.
TEST(LaneBoundaries, WaitsReachThroughLanes) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int gather = step.add(TaskKind::gather, LaneId::gather, {write});
  step.add(TaskKind::forward, LaneId::compute, {gather});
  const int backward = step.add(TaskKind::backward, LaneId::compute, {});
  step.add(TaskKind::host_read, LaneId::host, {backward}, -1);
  const LaneBoundaries boundaries = lane_boundaries(step.plan);
  EXPECT_FALSE(of(boundaries.continues, LaneId::compute));
  EXPECT_FALSE(of(boundaries.continues, LaneId::gather))
      << "a task before the one that the host waits for waited for it";
}

// Flags that tell a GPU about the host's work are recycled when the lane is waited for.
TEST(LaneBoundaries, TasksThatWaitForAHostLaneAreAwaited) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int update = step.add(TaskKind::update, LaneId::host_compute, {write});
  step.add(TaskKind::upload, LaneId::upload, {update});
  step.add(TaskKind::host_read, LaneId::host, {}, -1);
  const LaneBoundaries boundaries = lane_boundaries(step.plan);
  EXPECT_FALSE(of(boundaries.continues, LaneId::upload));
  EXPECT_TRUE(of(boundaries.continues, LaneId::host_compute));
}

// A wait for the task itself or for a later one refers to the previous step, which has already ended.
TEST(LaneBoundaries, WaitsForThePreviousStepDoNotCount) {
  Step step;
  const int write = step.add(TaskKind::host_write, LaneId::host, {}, -1);
  const int forward = step.add(TaskKind::forward, LaneId::compute, {write, 4});
  step.add(TaskKind::host_read, LaneId::host, {forward}, -1);
  step.add(TaskKind::gather, LaneId::gather, {forward});
  step.add(TaskKind::gather, LaneId::gather, {forward});
  EXPECT_TRUE(of(lane_boundaries(step.plan).continues, LaneId::gather));
}

TEST(LaneBoundaries, TasksBeforeTheHostWritesBeginEarly) {
  Step step;
  step.add(TaskKind::gather, LaneId::gather, {});
  step.add(TaskKind::host_write, LaneId::host, {}, -1);
  step.add(TaskKind::forward, LaneId::compute, {});
  const LaneBoundaries boundaries = lane_boundaries(step.plan);
  EXPECT_TRUE(of(boundaries.begins_early, LaneId::gather));
  EXPECT_FALSE(of(boundaries.begins_early, LaneId::compute));
}

constexpr std::size_t kBytes = 24;

// A plan with chunks in separate host memory, as with a GPU, or in the memory that collectives can reach.
StepPlan plan_with_chunks(const Job& job, int ranks, bool apart) {
  StepPlan plan = job.plan;
  const auto add = [&](Tier tier) {
    std::size_t& peak = plan.memory[static_cast<std::size_t>(tier)].peak;
    const std::size_t bytes = std::size_t{1} << 12;
    peak = (peak + bytes - 1) / bytes * bytes;
    plan.buffers.push_back({"chunks", Kind::staging, tier, bytes, true, true, peak});
    peak += bytes;
    return static_cast<int>(plan.buffers.size()) - 1;
  };
  plan.chunks = {kBytes, add(Tier::device), -1};
  plan.chunks.host_buffer = apart ? add(Tier::host) : plan.chunks.buffer;
  EXPECT_LE(static_cast<std::size_t>(ranks) * kBytes, plan.buffers.back().bytes);
  return plan;
}

TEST(ChunkGather, GivesEveryRankAllChunksInOrder) {
  for (const int ranks : {1, 2, 3})
    for (const bool apart : {false, true}) {
      const Job job = tiny_job({"training.global_batch_size=6", "zero.optimizer=host"}, ranks);
      const StepPlan plan = plan_with_chunks(job, ranks, apart);
      comm::run_threads(ranks, [&](comm::World& world) {
        Storage storage(plan, world, {});
        const Queues queues(plan, world, 1);
        ChunkGather chunks(plan, storage, *queues.gather);
        for (const char first : {'a', 'k'}) {  // again: nothing of the first time is left
          const auto text = [&](int rank) { return std::string(kBytes, static_cast<char>(first + rank)); };
          const std::span<std::byte> own = chunks.own();
          ASSERT_EQ(own.size(), kBytes);
          std::memcpy(own.data(), text(world.rank()).data(), kBytes);
          const std::span<const std::byte> all = chunks.all();
          std::string expected;
          for (int rank = 0; rank < ranks; ++rank) expected += text(rank);
          EXPECT_EQ(std::string(reinterpret_cast<const char*>(all.data()), all.size()), expected)
              << ranks << " ranks, " << (apart ? "apart" : "one buffer");
        }
      });
    }
}

}  // namespace

}  // namespace strata::runtime
