#include "runtime/forecast/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/runtime/forecast/unit_plan.h"

namespace strata::runtime {
namespace {

// A random plan: tasks in any lanes, each of which waits for a few earlier tasks of other lanes.
StepPlan random_plan(std::mt19937& random, std::size_t lanes) {
  std::vector<Task> tasks;
  for (int t = 0; t < 60; ++t) {
    const auto lane = static_cast<LaneId>(random() % lanes);
    std::vector<int> waits;
    for (int i = 0; i < 2 && t > 0; ++i) {
      const int wait = static_cast<int>(random() % static_cast<unsigned>(t));
      if (tasks[static_cast<std::size_t>(wait)].lane != lane) waits.push_back(wait);
    }
    tasks.push_back(task_in(lane, 0.1 + static_cast<double>(random() % 100) / 50, waits));
  }
  return plan_of(std::move(tasks));
}

TEST(SecondsOf, ACollectiveTakesTheLongerOfItsTwoLevels) {
  MachineProfile machine = unit_speeds(0);
  Task task = task_in(LaneId::gather, 6);
  task.cost.between_bytes = 2;
  const auto seconds = [&] { return sum_of(seconds_of(task, machine)); };
  EXPECT_DOUBLE_EQ(seconds(), 6) << "no figure for a network";
  machine.network_bytes_per_s = 1;
  machine.network_latency_s = 0.25;
  EXPECT_DOUBLE_EQ(seconds(), 4) << "4 bytes inside";
  machine.network_bytes_per_s = 0.25;
  EXPECT_DOUBLE_EQ(seconds(), 8.25);
  task.cost.between_bytes = 0;
  EXPECT_DOUBLE_EQ(seconds(), 6);
}

double end_of(const std::vector<Span>& spans) {
  std::int64_t end = 0;
  for (const Span& span : spans) end = std::max(end, span.end);
  return static_cast<double>(end) * 1e-9;
}
double length(const Span& span) {
  return static_cast<double>(span.end - span.begin) * 1e-9;
}

TEST(Simulator, ADriveTransferIncludesLatency) {
  MachineProfile machine = unit_speeds(0);
  machine.read_latency_s = 0.5;
  machine.write_latency_s = 0.25;
  const auto spans = simulate(
      plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::disk_write, 1, {0}), task_in(LaneId::compute, 1, {1})}),
      machine);
  EXPECT_NEAR(length(spans[0]), 1.5, kClock);
  EXPECT_NEAR(length(spans[1]), 1.25, kClock);
  EXPECT_NEAR(length(spans[2]), 1, kClock) << "no transfer";
}

TEST(Simulator, DriveTransfersUseAShareOfTheCores) {
  MachineProfile machine = unit_speeds(2);
  machine.disk_core_share = 0.25;
  // A read and a write share the drive, and together use a quarter of the cores.
  const auto spans = simulate(
      plan_of({task_in(LaneId::compute, 4), task_in(LaneId::disk_read, 1), task_in(LaneId::disk_write, 1)}), machine);
  EXPECT_NEAR(length(spans[1]), 2, kClock);
  EXPECT_NEAR(length(spans[2]), 2, kClock);
  EXPECT_NEAR(length(spans[0]), 2 + (4 - 2 / 1.25), kClock) << "at four fifths of the speed for two seconds";
}

TEST(Simulator, ADrivesSpeedAllowsForBothDirectionsAndProducts) {
  MachineProfile machine = unit_speeds(2);
  machine.disk_both_ways = 0.8;
  machine.disk_speed_during_products = 0.5;
  const auto alone = simulate(plan_of({task_in(LaneId::disk_read, 1)}), machine);
  EXPECT_NEAR(length(alone[0]), 1, kClock);
  const auto both = simulate(plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::disk_write, 1)}), machine);
  EXPECT_NEAR(length(both[0]), 2 / 0.8, kClock);
  const auto overlapping = simulate(plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::compute, 4)}), machine);
  EXPECT_NEAR(length(overlapping[0]), 2, kClock);
  // One of two threads has at most half of the products' speed.
  const auto half = simulate(plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::gather, 4)}), machine);
  EXPECT_NEAR(length(half[0]), 1 / 0.75, kClock);
}

// One of many steps, between the host's write and read. The work that the previous step left runs first, and the work
// that this step leaves runs after its end.
TEST(Simulator, TasksThatTheHostDoesNotAwaitOverlapTheNextStep) {
  StepPlan plan = plan_of({task_in(LaneId::host, 0), task_in(LaneId::compute, 1), task_in(LaneId::compute, 1, {3}),
                           task_in(LaneId::gather, 1.5, {2}), task_in(LaneId::host, 0, {2})});
  const MachineProfile machine = unit_speeds(0);
  const auto spans = simulate(plan, machine);
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_NEAR(length(spans[1]), 1, kClock);
  EXPECT_NEAR(static_cast<double>(spans[2].begin) * 1e-9, 1.5, kClock) << "after the previous step's gather";
  EXPECT_NEAR(makespan_s(plan, spans), 2.5, kClock);
  EXPECT_NEAR(end_of(spans), 4, kClock);
  EXPECT_NEAR(exposed_ms(plan, spans)[static_cast<std::size_t>(LaneId::gather)], 500, 1e-3);
  EXPECT_NEAR(sum_of(critical_path(plan, machine, spans)), 2.5, kClock);

  // Work that has ended by the end of the step delays nothing in the next one.
  plan.tasks[3] = task_in(LaneId::gather, 0.5, {1});
  EXPECT_NEAR(makespan_s(plan, simulate(plan, machine)), 2, kClock);

  // This is also true before the first task.
  plan.tasks[3] = task_in(LaneId::gather, 0.5, {2});
  plan.tasks[1].waits = {3};
  const auto begun_late = simulate(plan, machine);
  EXPECT_NEAR(static_cast<double>(begun_late[1].begin) * 1e-9, 0.5, kClock);
  EXPECT_NEAR(exposed_ms(plan, begun_late, 0)[static_cast<std::size_t>(LaneId::gather)], 500, 1e-3);
  EXPECT_NEAR(sum_of(critical_path(plan, machine, begun_late)), 2.5, kClock);

  // Work for which the host waits does not run during the next step.
  plan.tasks[0].waits = {3};
  EXPECT_NEAR(makespan_s(plan, simulate(plan, machine)), 2.5, kClock);
  EXPECT_NEAR(static_cast<double>(simulate(plan, machine)[1].begin) * 1e-9, 0, kClock);
}

TEST(Simulator, SimulatesAStepWithoutACheckpoint) {
  StepPlan plan = plan_of({task_in(LaneId::checkpoint, 7), task_in(LaneId::host, 0), task_in(LaneId::compute, 1, {0}),
                           task_in(LaneId::host, 0, {2})});
  plan.tasks[0].when = When::checkpoint;
  const auto spans = simulate(plan, unit_speeds(0));
  EXPECT_EQ(spans[0].end, 0);
  EXPECT_NEAR(end_of(spans), 1, kClock);
}

TEST(Simulator, LanesKeepTheirOrderAndTasksTheirWaits) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const StepPlan plan = random_plan(random, kTrainingLanes);
    const MachineProfile machine = unit_speeds(round % 2 ? 2 : 0);
    const auto spans = simulate(plan, machine);
    std::array<std::int64_t, kLanes> free{};
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      std::int64_t& lane = free[static_cast<std::size_t>(task.lane)];
      ASSERT_GE(spans[t].begin, lane);
      for (const int wait : task.waits) ASSERT_GE(spans[t].begin, spans[static_cast<std::size_t>(wait)].end);
      ASSERT_GE(length(spans[t]), sum_of(seconds_of(task, machine)) - kClock) << "faster than alone";
      lane = spans[t].end;
    }
  }
}

// The compute lane and the update lane both use every core.
TEST(Simulator, TeamsThatShareCoresGetHalfEach) {
  const StepPlan plan = plan_of({task_in(LaneId::compute, 1), task_in(LaneId::host_compute, 3)});
  const auto shared = simulate(plan, unit_speeds(2));
  EXPECT_NEAR(length(shared[0]), 2, kClock);
  EXPECT_NEAR(length(shared[1]), 4, kClock) << "alone after the other is done";
  const auto apart = simulate(plan, unit_speeds(0));
  EXPECT_NEAR(length(apart[0]), 1, kClock);
  EXPECT_NEAR(length(apart[1]), 3, kClock);
}

TEST(Simulator, OneThreadTakesOneCore) {
  const StepPlan two = plan_of({task_in(LaneId::gather, 1), task_in(LaneId::reduce, 1)});
  EXPECT_NEAR(end_of(simulate(two, unit_speeds(2))), 1, kClock) << "a core each";
  EXPECT_NEAR(end_of(simulate(two, unit_speeds(1))), 2, kClock) << "one core for both";
  const StepPlan overlapping = plan_of({task_in(LaneId::compute, 1), task_in(LaneId::reduce, 1)});
  EXPECT_NEAR(end_of(simulate(overlapping, unit_speeds(2))), 1.5, kClock) << "three threads on two cores";
}

TEST(Simulator, MemoryIsShared) {
  MachineProfile machine = unit_speeds(64);
  machine.memory_bytes_per_s = 1;  // each of the two streams needs all of it
  const StepPlan plan = plan_of({task_in(LaneId::host_compute, 1), task_in(LaneId::reduce, 1)});
  EXPECT_NEAR(end_of(simulate(plan, machine)), 2, kClock);
}

TEST(Simulator, DrivesAreSharedByReadsAndWritesButTakeNoCores) {
  const StepPlan plan =
      plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::disk_write, 1), task_in(LaneId::compute, 1)});
  const auto spans = simulate(plan, unit_speeds(1));
  EXPECT_NEAR(length(spans[0]), 2, kClock);
  EXPECT_NEAR(length(spans[1]), 2, kClock);
  EXPECT_NEAR(length(spans[2]), 1, kClock);
}

// Cores never exceed their speed, and are never idle while there is work for them.
TEST(Simulator, SharingConservesWork) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<Task> tasks;
    double work = 0;
    for (int t = 0; t < 40; ++t) {
      const double seconds = 0.1 + static_cast<double>(random() % 100) / 50;
      tasks.push_back(task_in(random() % 2 ? LaneId::compute : LaneId::host_compute, seconds));
      work += seconds;
    }
    EXPECT_NEAR(end_of(simulate(plan_of(std::move(tasks)), unit_speeds(2))), work, kClock);
  }
}

// This holds if nothing is shared. With shared processors, a faster drive can make a step slower, as on real machines.
TEST(Simulator, MoreBandwidthIsNeverSlower) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const StepPlan plan = random_plan(random, static_cast<std::size_t>(LaneId::disk_read));
    const MachineProfile machine = unit_speeds(0);
    const double before = end_of(simulate(plan, machine));
    for (double MachineProfile::*speed : {&MachineProfile::flops_per_s, &MachineProfile::host_bytes_per_s,
                                          &MachineProfile::norm_bytes_per_s, &MachineProfile::all_gather_bytes_per_s}) {
      MachineProfile faster = machine;
      faster.*speed *= 3;
      EXPECT_LE(end_of(simulate(plan, faster)), before + kClock);
    }
  }
}

// Compute waits a second for the drive, then for the link.
TEST(Simulator, AttributesAStepsTimeToItsBottlenecks) {
  const StepPlan plan = plan_of({task_in(LaneId::disk_read, 1), task_in(LaneId::upload, 0.25, {0}),
                                 task_in(LaneId::compute, 0.5), task_in(LaneId::compute, 2, {1})});
  const MachineProfile machine = unit_speeds(0);
  const auto spans = simulate(plan, machine);
  const BoundSeconds path = critical_path(plan, machine, spans);
  const auto of = [&](Bound bound) { return path[static_cast<std::size_t>(bound)]; };
  EXPECT_NEAR(of(Bound::disk), 1, kClock);
  EXPECT_NEAR(of(Bound::host_link), 0.25, kClock);
  EXPECT_NEAR(of(Bound::products), 2, kClock) << "the first half second is hidden";
  EXPECT_NEAR(sum_of(path), end_of(spans), kClock);
  EXPECT_NEAR(exposed_ms(plan, spans)[static_cast<std::size_t>(LaneId::upload)], 750, 1e-3);
}

// Tasks that send to other nodes at once share the network.
TEST(Simulator, LanesShareTheNetwork) {
  const auto sends = [](LaneId lane, TaskKind kind) {
    Task task{};
    task.lane = lane;
    task.kind = kind;
    task.cost = {.sent_bytes = 1, .between_bytes = 1};
    return task;
  };
  MachineProfile machine = unit_speeds(0);
  machine.network_bytes_per_s = 1;
  const StepPlan plan = plan_of({sends(LaneId::gather, TaskKind::gather), sends(LaneId::reduce, TaskKind::reduce)});
  EXPECT_NEAR(end_of(simulate(plan, machine)), 2, kClock);
  machine.network_bytes_per_s = 0;
  EXPECT_NEAR(end_of(simulate(plan, machine)), 1, kClock) << "links within a node are not shared";
}

// Until a message from another stage arrives, a stage does its own work or waits.
TEST(Simulator, CountsWaitsForOtherStages) {
  Task receive = task_in(LaneId::stage_backward, 0);
  receive.kind = TaskKind::receive;
  const StepPlan plan = plan_of({task_in(LaneId::compute, 1), receive, task_in(LaneId::compute, 2, {1})});
  // The time counts from when the task is issued, both simulated and measured.
  for (const std::int64_t issued : {std::int64_t{4'000'000'000}, std::int64_t{0}}) {
    const std::vector<Span> spans = {{0, 1'000'000'000}, {issued, 4'000'000'000}, {4'000'000'000, 6'000'000'000}};
    const BoundSeconds path = critical_path(plan, unit_speeds(0), spans);
    EXPECT_NEAR(path[static_cast<std::size_t>(Bound::stages)], 3, kClock) << issued;
    EXPECT_NEAR(path[static_cast<std::size_t>(Bound::products)], 3, kClock) << issued;
  }
}

// An update after the host's read, for which only the next step waits.
TEST(Simulator, ThePathOfAMeasuredStepEndsWithItsLastTask) {
  const StepPlan plan =
      plan_of({task_in(LaneId::compute, 2), task_in(LaneId::host, 0, {0}), task_in(LaneId::compute, 1, {0})});
  const std::vector<Span> spans = {{0, 2'000'000'000}, {2'000'000'000, 2'000'000'000}, {2'000'000'000, 3'000'000'000}};
  EXPECT_NEAR(sum_of(critical_path(plan, unit_speeds(0), spans)), 2, kClock);
  EXPECT_NEAR(sum_of(critical_path(plan, unit_speeds(0), spans, 2)), 3, kClock);
}

// As in a run's first step, the time before the following task is unknown.
TEST(Simulator, SkippedTasksCauseNoWait) {
  const StepPlan plan =
      plan_of({task_in(LaneId::upload, 1), task_in(LaneId::compute, 1), task_in(LaneId::compute, 1, {0})});
  const std::int64_t now = 1'000'000'000'000;  // a steady clock's
  const std::vector<Span> spans = {{now, now + 5'000'000}, {0, 0}, {now + 5'000'000, now + 9'000'000}};
  EXPECT_EQ(exposed_ms(plan, spans)[static_cast<std::size_t>(LaneId::upload)], 0);
}

TEST(Simulator, AddsUpTheCostsOfATask) {
  Task task{};
  task.kind = TaskKind::backward;
  task.cost = {.flops = 1, .attention_flops = 2, .bytes = 4};
  MachineProfile machine = unit_speeds(0);
  machine.task_overhead_s = 8;
  const BoundSeconds s = seconds_of(task, machine);
  EXPECT_EQ(s[static_cast<std::size_t>(Bound::products)], 1);
  EXPECT_EQ(s[static_cast<std::size_t>(Bound::attention)], 2);
  EXPECT_EQ(s[static_cast<std::size_t>(Bound::memory)], 4);
  EXPECT_EQ(s[static_cast<std::size_t>(Bound::waking)], 8);
}

}  // namespace
}  // namespace strata::runtime
