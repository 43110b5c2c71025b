#include "runtime/plan/validator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// The validator must see each kind of damage; a plan of every stage and order, and of units in parts (4), is damaged at
// every place.
class Mutation : public testing::TestWithParam<int> {
 protected:
  PlanCase case_;
  StepPlan plan_ = [this] {
    case_ = make_case(small(true), 3, 2, std::min(GetParam(), 3), device::DType::bf16, false, GetParam() % 2 == 1, 1,
                      {Recompute::Kind::sqrt, {}});
    case_.request.tile_bytes = GetParam() == 4 ? 1 : 0;
    return make_plan(case_.request);
  }();
};

TEST_P(Mutation, DroppedWaitIsCaught) {
  ASSERT_EQ(find_violation(plan_, kUnlimited), std::nullopt);
  int dropped = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    for (std::size_t w = 0; w < plan_.tasks[t].waits.size(); ++w) {
      StepPlan damaged = plan_;
      auto& waits = damaged.tasks[t].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t << ", wait " << w;
      ++dropped;
    }
  EXPECT_GT(dropped, 10);
}

TEST_P(Mutation, OverlappingBufferIsCaught) {
  const auto lives = lifetimes_of(plan_);
  int caught = 0;
  for (std::size_t a = 0; a < plan_.buffers.size(); ++a)
    for (std::size_t b = a + 1; b < plan_.buffers.size(); ++b) {
      if (plan_.buffers[a].kind != plan_.buffers[b].kind) continue;
      if (lives[a].last < lives[b].first || lives[b].last < lives[a].first) continue;
      StepPlan damaged = plan_;
      damaged.buffers[b].offset = damaged.buffers[a].offset;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt)
          << plan_.buffers[a].name << " over " << plan_.buffers[b].name;
      ++caught;
    }
  EXPECT_GT(caught, 10);
}

// What the step before gathers late: at ZeRO-1 and 2.
TEST_P(Mutation, DroppedLateWaitIsCaught) {
  int late = 0, dropped = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    StepPlan damaged = plan_;
    if (plan_.tasks[t].late_wait >= 0) {
      damaged.tasks[t].late_wait = -1;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t;
      ++dropped;
    }
    if (!plan_.tasks[t].late) {
      damaged.tasks[t].late = true;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t << " made late";
    }
    late += plan_.tasks[t].late ? 1 : 0;
  }
  const bool gathers_late = GetParam() == 1 || GetParam() == 2;
  EXPECT_EQ(late, gathers_late ? static_cast<int>(case_.model->units.size()) : 0);
  EXPECT_EQ(dropped, late);
}

TEST_P(Mutation, TooSmallACapacityIsCaught) {
  EXPECT_EQ(find_violation(plan_, {plan_.memory[0].peak, 0, 0}), std::nullopt);
  EXPECT_NE(find_violation(plan_, {plan_.memory[0].peak - 1, 0, 0}), std::nullopt);
}

TEST_P(Mutation, SwappedCollectiveIsCaught) {
  std::vector<StepPlan> ranks = {plan_, plan_};
  ASSERT_EQ(find_mismatch(ranks), std::nullopt);
  std::vector<std::size_t> collectives;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    if (plan_.tasks[t].cost.sent_bytes > 0) collectives.push_back(t);
  ASSERT_GT(collectives.size(), 4u);
  for (std::size_t i = 0; i + 1 < collectives.size(); ++i) {
    ranks[1] = plan_;
    std::swap(ranks[1].tasks[collectives[i]], ranks[1].tasks[collectives[i + 1]]);
    EXPECT_NE(find_mismatch(ranks), std::nullopt) << "collectives " << i << " and " << i + 1;
  }
  ranks[1] = plan_;
  ranks[1].tasks.erase(ranks[1].tasks.begin() + static_cast<std::ptrdiff_t>(collectives[0]));
  EXPECT_NE(find_mismatch(ranks), std::nullopt) << "one rank leaves one out";
}

// Of every collective, every field that it takes from its task: one that differs is seen, whatever is alike.
TEST_P(Mutation, CollectiveThatDiffersInOneFieldIsCaught) {
  const std::pair<const char*, void (*)(Task&)> damages[] = {
      {"kind", [](Task& t) { t.kind = t.kind == TaskKind::gather ? TaskKind::gather_sums : TaskKind::gather; }},
      {"lane", [](Task& t) { t.lane = t.lane == LaneId::gather ? LaneId::reduce : LaneId::gather; }},
      {"unit", [](Task& t) { ++t.unit; }},
      {"micro-batch", [](Task& t) { ++t.micro_batch; }},
      {"tied", [](Task& t) { t.tied = !t.tied; }},
      {"begin", [](Task& t) { ++t.begin; }},
      {"end", [](Task& t) { ++t.end; }},
      {"bytes", [](Task& t) { ++t.cost.sent_bytes; }},
  };
  std::vector<StepPlan> ranks = {plan_, plan_};
  int collectives = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    if (plan_.tasks[t].cost.sent_bytes == 0) continue;
    ++collectives;
    for (const auto& [field, damage] : damages) {
      damage(ranks[1].tasks[t]);
      EXPECT_NE(find_mismatch(ranks), std::nullopt) << field << " of task " << t;
      ranks[1].tasks[t] = plan_.tasks[t];
    }
  }
  EXPECT_GT(collectives, 4);
  EXPECT_EQ(find_mismatch(ranks), std::nullopt);
}

// Tasks of the update that a step leaves are not run in the first step, and alone after the last one.
TEST(PendingMutation, ATaskThatRunsWithoutItsUpdateIsCaught) {
  PlanCase c = make_case(small(true), 2, 2, 2, device::DType::bf16, false, false, 1, {Recompute::Kind::none, {}});
  c.request.placement.optimizer.tier = Tier::nvme;
  const StepPlan plan = make_plan(c.request);
  ASSERT_EQ(find_violation(plan, kUnlimited), std::nullopt);
  int damages = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const auto& uses = plan.tasks[t].uses;
    // Where it only touches what lives from step to step there is nothing to see.
    if (!plan.tasks[t].pending || std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
          return plan.buffers[static_cast<std::size_t>(use.buffer)].whole_cycle;
        }))
      continue;
    StepPlan damaged = plan;
    damaged.tasks[t].pending = false;
    EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t;
    ++damages;
  }
  EXPECT_GT(damages, 10);
}

// Of what is read over the step's end: that it is filled, by the step before, after what was written last.
TEST(PendingMutation, StaleStateReadAheadIsCaught) {
  PlanCase c = make_case(large_first(), 2, 2, 2, device::DType::bf16, false, false, 1, {Recompute::Kind::none, {}});
  c.request.placement.optimizer.tier = Tier::nvme;
  c.request.update_chunk = kShardAlignment;
  c.request.read_ahead = true;
  const StepPlan plan = make_plan(c.request);
  ASSERT_EQ(find_violation(plan, kUnlimited), std::nullopt);
  int fills = 0, writes = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    StepPlan damaged = plan;
    if (task.kind == TaskKind::read && !task.pending) {
      damaged.tasks[t].uses.clear();
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "nothing is read by task " << t;
      damaged = plan;
      damaged.tasks[t].pending = true;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "too late: task " << t;
      ++fills;
    } else if (task.kind == TaskKind::write && task.unit == 0) {
      damaged.tasks[t].pending = false;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "written in any step: task " << t;
      damaged = plan;
      for (Task& other : damaged.tasks)
        if (other.kind == TaskKind::read && !other.pending) std::swap(other, damaged.tasks[t]);
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "read before task " << t;
      ++writes;
    }
  }
  EXPECT_GT(fills, 2);
  EXPECT_GT(writes, 2);
}

INSTANTIATE_TEST_SUITE_P(Stages, Mutation, testing::Values(0, 1, 2, 3, 4));

}  // namespace
}  // namespace strata::runtime
