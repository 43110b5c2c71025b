#include <gtest/gtest.h>

#include <vector>

#include "runtime/execute/lanes.h"

namespace strata::runtime {
namespace {

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
