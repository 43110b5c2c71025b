// The plans of a pipeline's stages are consistent for any model and request, and inconsistent plans are refused.
#include <gmock/gmock.h>

#include <algorithm>

#include "runtime/plan/proof/proof.h"
#include "tests/runtime/planner/random_case.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

// The plans of all stages of a request.
std::vector<StepPlan> plans_of(PlanRequest request, const std::vector<UnitRange>& pieces, int stages) {
  const std::vector<Segment> segments = request.segments;
  request.pieces = pieces;
  request.mesh.stages = stages;
  request.mesh.world *= stages;
  request.vertical = false;
  std::vector<StepPlan> plans;
  for (request.stage = 0; request.stage < stages; ++request.stage) {
    request.segments = within(segments, units_of_stage(pieces, stages, request.stage));
    plans.push_back(make_plan(request));
  }
  return plans;
}
std::optional<std::string> mismatch(const std::vector<StepPlan>& plans) {
  std::vector<const StepPlan*> all;
  for (const StepPlan& plan : plans) all.push_back(&plan);
  return find_mismatch(all);
}

TEST(StageMatch, HoldsForAnyModelAndRequest) {
  EXPECT_TRUE(rc::check([] {
    PlanCase c = random_case();
    const int units = static_cast<int>(c.model->units.size());
    std::vector<UnitRange> pieces{{0, 0}};
    for (int unit = 1; unit < units; ++unit)
      if (*rc::gen::arbitrary<bool>())
        pieces.push_back({unit, unit});
      else
        pieces.back().last = unit;
    RC_PRE(pieces.size() > 1);
    int stages = static_cast<int>(pieces.size());
    // In families, the last unit may share a table of the first.
    const bool ties_ends = std::ranges::all_of(c.model->units, [&](const auto& unit) {
      return !unit->shared() || (unit->shared()->unit == 0 && unit == c.model->units.back());
    });
    if (stages % 2 == 0 && stages > 2 && ties_ends && *rc::gen::arbitrary<bool>()) {
      stages = *rc::gen::element(2, stages / 2);
      if (static_cast<int>(pieces.size()) % stages != 0) stages = 2;
      c.request.accumulation = (c.request.accumulation + stages - 1) / stages * stages;
      c.request.schedule = Schedule::interleaved;
    } else if (*rc::gen::arbitrary<bool>()) {
      c.request.schedule = Schedule::all_forward_all_backward;
    }
    const std::vector<StepPlan> plans = plans_of(c.request, pieces, stages);
    for (const StepPlan& plan : plans)
      if (const auto violation = find_violation(plan, kUnlimited)) RC_FAIL(*violation);
    if (const auto found = mismatch(plans)) RC_FAIL(*found);
  }));
}

class Mismatches : public testing::Test {
 protected:
  Mismatches() {
    PlanCase c = make_case(small(true), 1, 3, 0, device::DType::bf16, false, false, 2, {});
    plans_ = plans_of(c.request, {{0, 1}, {2, 3}, {4, 4}}, 3);
  }
  Task& message(int stage, TaskKind kind, int n) {
    for (Task& task : plans_[static_cast<std::size_t>(stage)].tasks)
      if (task.kind == kind && n-- == 0) return task;
    std::abort();
  }
  std::vector<StepPlan> plans_;
};

TEST_F(Mismatches, MatchingStagesHaveNone) {
  EXPECT_EQ(mismatch(plans_), std::nullopt);
}

TEST_F(Mismatches, DifferentSizesAreDetected) {
  message(1, TaskKind::receive, 0).uses[0].bytes += 4096;
  EXPECT_THAT(mismatch(plans_).value_or(""), HasSubstr("message 0 from stage 0 to stage 1"));
}

TEST_F(Mismatches, ADifferentMicroBatchIsDetected) {
  std::swap(message(0, TaskKind::send, 0).micro_batch, message(0, TaskKind::send, 1).micro_batch);
  EXPECT_THAT(mismatch(plans_).value_or(""), HasSubstr("message 0 from stage 0 to stage 1"));
}

TEST_F(Mismatches, AnotherUnitsActivationIsDetected) {
  message(0, TaskKind::send, 0).unit = 0;
  EXPECT_THAT(mismatch(plans_).value_or(""), HasSubstr("message 0 from stage 0 to stage 1"));
}

TEST_F(Mismatches, AMissingMessageIsDetected) {
  message(2, TaskKind::receive, 3).kind = TaskKind::forward;  // the tied table
  EXPECT_THAT(mismatch(plans_).value_or(""), HasSubstr("stage 0 sends 1 messages to stage 2, which receives 0"));
}

// The tied table's gradient is sent before the last gradient of activations. The stage in between waits for the latter,
// and the first stage receives it before the table's.
TEST_F(Mismatches, ADeadlockIsDetected) {
  const auto newest = [&](int peer) {
    std::vector<Task>& tasks = plans_[2].tasks;
    return std::find_if(tasks.rbegin(), tasks.rend(), [&](const Task& task) {
      return task.kind == TaskKind::send && task.lane == LaneId::stage_backward && task.peer == peer;
    });
  };
  std::swap(*newest(0), *newest(1));
  EXPECT_THAT(mismatch(plans_).value_or(""), HasSubstr("never gets past"));
}

}  // namespace
}  // namespace strata::runtime
