#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/forecast/simulator.h"
#include "tests/runtime/forecast/unit_plan.h"

namespace strata::runtime {
namespace {

Task message(TaskKind kind, LaneId lane, int peer, double seconds, std::vector<int> waits = {}) {
  Task task{};
  task.kind = kind;
  task.lane = lane;
  task.peer = peer;
  task.cost.sent_bytes = kind == TaskKind::send ? seconds : 0;
  task.waits = std::move(waits);
  return task;
}
StepPlan stage_of(int stage, std::vector<Task> tasks) {
  StepPlan plan = plan_of(std::move(tasks));
  plan.stage = stage;
  return plan;
}
// When each task of two communicating stages begins, in seconds.
std::vector<std::vector<double>> begins(const StepPlan& first, const StepPlan& second) {
  const StepPlan* const plans[] = {&first, &second};
  std::vector<std::vector<double>> out;
  for (const std::vector<Span>& spans : simulate(plans, unit_speeds(0))) {
    auto& of_stage = out.emplace_back();
    for (const Span& span : spans) of_stage.push_back(static_cast<double>(span.begin) * 1e-9);
  }
  return out;
}

TEST(SimulatorOfStages, AReceiverStartsWhenTheMessageHasArrived) {
  const StepPlan first =
      stage_of(0, {task_in(LaneId::compute, 2), message(TaskKind::send, LaneId::stage_forward, 1, 1, {0}),
                   task_in(LaneId::compute, 2), message(TaskKind::send, LaneId::stage_forward, 1, 1, {2})});
  // It waits for the first message, and computes when the second one arrives.
  const StepPlan second =
      stage_of(1, {message(TaskKind::receive, LaneId::stage_forward, 0, 0), task_in(LaneId::compute, 4, {0}),
                   message(TaskKind::receive, LaneId::stage_forward, 0, 0), task_in(LaneId::compute, 1, {2})});
  EXPECT_EQ(begins(first, second), (std::vector<std::vector<double>>{{0, 2, 2, 4}, {3, 3, 5, 7}}));
}

// While the sender computes, the stage waits for it, and afterwards for the network.
TEST(SimulatorOfStages, AMessageInFlightCountsAsCommunication) {
  const StepPlan first =
      stage_of(0, {task_in(LaneId::compute, 2), message(TaskKind::send, LaneId::stage_forward, 1, 1, {0}),
                   task_in(LaneId::compute, 2), message(TaskKind::send, LaneId::stage_forward, 1, 5, {2})});
  const StepPlan second =
      stage_of(1, {message(TaskKind::receive, LaneId::stage_forward, 0, 0), task_in(LaneId::compute, 0.5, {0}),
                   message(TaskKind::receive, LaneId::stage_forward, 0, 0), task_in(LaneId::compute, 1, {2})});
  const StepPlan* const plans[] = {&first, &second};
  const auto spans = simulate(plans, unit_speeds(0));
  const std::vector<SimulatedStage> stages = {{&first, spans[0]}, {&second, spans[1]}};
  const auto departed = send_times(stages, 1);
  EXPECT_EQ(departed, (std::vector<std::int64_t>{2'000'000'000, 0, 4'000'000'000, 0}));
  const BoundSeconds path = critical_path(second, unit_speeds(0), spans[1], -1, departed);
  EXPECT_NEAR(path[static_cast<std::size_t>(Bound::stages)], 2.5, kClock);
  EXPECT_NEAR(path[static_cast<std::size_t>(Bound::communication)], 6, kClock);
  EXPECT_NEAR(sum_of(path), makespan_s(second, spans[1]), kClock);
  EXPECT_NEAR(makespan_s(first, spans[0]), 9, kClock);
  EXPECT_NEAR(makespan_s(stages), 10, kClock) << "all stages";
}

TEST(SimulatorOfStages, MessagesThatEndTogetherWakeBoth) {
  const auto plan = [](int stage) {
    const LaneId out = stage == 0 ? LaneId::stage_forward : LaneId::stage_backward;
    const LaneId in = stage == 0 ? LaneId::stage_backward : LaneId::stage_forward;
    return stage_of(stage, {message(TaskKind::send, out, 1 - stage, 2), message(TaskKind::receive, in, 1 - stage, 0),
                            task_in(LaneId::compute, 1, {1}), task_in(LaneId::compute, 0),
                            message(TaskKind::send, out, 1 - stage, 1, {3}),
                            message(TaskKind::receive, in, 1 - stage, 0), task_in(LaneId::compute, 1, {5})});
  };
  const std::vector<double> both = {0, 2, 2, 3, 3, 4, 4};
  EXPECT_EQ(begins(plan(0), plan(1)), (std::vector<std::vector<double>>{both, both}));
}

}  // namespace
}  // namespace strata::runtime
