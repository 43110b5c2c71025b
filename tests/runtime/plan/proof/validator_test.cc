#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/plan/passes.h"
#include "runtime/plan/proof/proof.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {
namespace {

// The validator must detect each kind of damage. Plans of every stage and order, of units in parts (4), of steps that
// omit tasks (5: a checkpoint's; 6: also a pending update's), and of a GPU (7) are damaged at every place.
class Mutation : public testing::TestWithParam<int> {
 protected:
  bool cyclic() const { return GetParam() == 6; }

  PlanCase case_;
  StepPlan plan_ = [this] {
    const int stage = std::array{0, 1, 2, 3, 3, 2, 2, 1}[static_cast<std::size_t>(GetParam())];
    case_ = make_case(small(true), 3, 2, stage, device::DType::bf16, false, GetParam() % 2 == 1, 1,
                      {Recompute::Kind::sqrt, {}});
    case_.request.tile_bytes = GetParam() == 4 ? 1 : 0;
    if (GetParam() >= 5) case_.request.checkpoint_staging = 4096;
    if (cyclic()) case_.request.placement.optimizer.tier = Tier::nvme;
    if (GetParam() == 7) case_.request.shape.device.kind = device::Kind::cuda;
    return make_plan(case_.request);
  }();
};

TEST_P(Mutation, DroppedWaitIsCaught) {
  ASSERT_EQ(find_violation(plan_, kUnlimited), std::nullopt);
  int dropped = 0, across = 0, for_optional = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    for (std::size_t w = 0; w < plan_.tasks[t].waits.size(); ++w) {
      StepPlan damaged = plan_;
      auto& waits = damaged.tasks[t].waits;
      const auto other = static_cast<std::size_t>(waits[w]);
      // Some waits of an update's tasks for those of the previous one follow from others.
      if (other >= t && plan_.tasks[t].when == When::pending && plan_.tasks[other].when == When::pending) continue;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt)
          << "task " << t << " (" << name_of(plan_.tasks[t], *case_.model) << "), for task " << other << " ("
          << name_of(plan_.tasks[other], *case_.model) << ")";
      ++dropped;
      across += other >= t ? 1 : 0;
      for_optional += plan_.tasks[other].when == When::always ? 0 : 1;
    }
  EXPECT_GT(dropped, 10);
  EXPECT_GT(across, 0);
  EXPECT_EQ(for_optional > 0, GetParam() >= 5);
}

TEST_P(Mutation, OverlappingBufferIsCaught) {
  const auto lives = lifetimes_of(plan_);
  int caught = 0;
  for (std::size_t a = 0; a < plan_.buffers.size(); ++a)
    for (std::size_t b = a + 1; b < plan_.buffers.size(); ++b) {
      if (plan_.buffers[a].kind != plan_.buffers[b].kind || plan_.buffers[a].tier != plan_.buffers[b].tier) continue;
      if (lives[a].last < lives[b].first || lives[b].last < lives[a].first) continue;
      StepPlan damaged = plan_;
      damaged.buffers[b].offset = damaged.buffers[a].offset;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt)
          << plan_.buffers[a].name << " over " << plan_.buffers[b].name;
      ++caught;
    }
  EXPECT_GT(caught, 10);
}

// A step that leaves out a task whose result another reads, and one in which the two have changed places.
TEST_P(Mutation, OmittedOrLateTaskIsCaught) {
  int left_out = 0, late = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    if (plan_.tasks[t].when != When::always) continue;
    const auto reader = [&](const Use& use) {
      // A buffer that lives from step to step holds what was written earlier.
      if (use.access != Access::write || plan_.buffers[static_cast<std::size_t>(use.buffer)].persistent) return t;
      for (std::size_t r = t + 1; r < plan_.tasks.size(); ++r)
        for (const Use& other : plan_.tasks[r].uses)
          if (other.buffer == use.buffer && plan_.tasks[r].when == When::always) return r;
      return t;
    };
    std::size_t first = t;  // the task that uses next what this one writes
    for (const Use& use : plan_.tasks[t].uses)
      if (const std::size_t r = reader(use); first == t || r < first) first = std::max(r, t);
    if (first == t) continue;
    const auto& uses = plan_.tasks[first].uses;
    const bool reads = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.access != Access::write &&
             std::any_of(plan_.tasks[t].uses.begin(), plan_.tasks[t].uses.end(), [&](const Use& written) {
               return written.buffer == use.buffer && written.access == Access::write;
             });
    });
    if (!reads) continue;
    for (const When when : {When::pending, When::checkpoint}) {
      StepPlan damaged = plan_;
      damaged.tasks[t].when = when;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt)
          << "task " << t << " (" << name_of(plan_.tasks[t], *case_.model) << ") is left out";
      ++left_out;
    }
    StepPlan damaged = plan_;
    std::swap(damaged.tasks[t], damaged.tasks[first]);
    for (Task& task : damaged.tasks)
      for (int& wait : task.waits)
        if (wait == static_cast<int>(t) || wait == static_cast<int>(first)) wait = static_cast<int>(t + first) - wait;
    EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t << " comes after task " << first;
    ++late;
  }
  EXPECT_GT(left_out, 10);
  EXPECT_GT(late, 5);
}

// A task's use of a buffer is moved by a page, to another task's bytes or beyond the end of the written ones.
TEST_P(Mutation, ShiftedUseIsCaught) {
  if (!cyclic()) GTEST_SKIP() << "only updates by chunks use parts of buffers";
  int shifted = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    for (std::size_t u = 0; u < plan_.tasks[t].uses.size(); ++u) {
      const Use& use = plan_.tasks[t].uses[u];
      const Buffer& buffer = plan_.buffers[static_cast<std::size_t>(use.buffer)];
      // State always exists, so using another part of it gives other numbers but is not a violation.
      if (use.bytes == 0 || buffer.persistent || use.access == Access::write) continue;
      StepPlan damaged = plan_;
      damaged.tasks[t].uses[u].offset += buffer.bytes;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t << ", " << buffer.name;
      ++shifted;
    }
  EXPECT_GT(shifted, 10);
}

TEST_P(Mutation, TooSmallACapacityIsCaught) {
  std::array<std::size_t, kTiers> capacity{};
  for (std::size_t tier = 0; tier < kTiers; ++tier) capacity[tier] = plan_.memory[tier].peak;
  EXPECT_EQ(find_violation(plan_, capacity), std::nullopt);
  for (std::size_t& bytes : capacity) {
    if (bytes == 0) continue;
    --bytes;
    EXPECT_NE(find_violation(plan_, capacity), std::nullopt);
    ++bytes;
  }
}

// Ranks compare the hashes of their plans before the first step, so a swapped collective must change the hash.
TEST_P(Mutation, SwappedCollectiveChangesTheHash) {
  const std::uint64_t hash = hash_of(plan_);
  std::vector<std::size_t> collectives;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    if (traits_of(plan_.tasks[t].kind).collective != Collective::none) collectives.push_back(t);
  ASSERT_GT(collectives.size(), 4u);
  for (std::size_t i = 0; i + 1 < collectives.size(); ++i) {
    StepPlan other = plan_;
    std::swap(other.tasks[collectives[i]], other.tasks[collectives[i + 1]]);
    EXPECT_NE(hash_of(other), hash) << "collectives " << i << " and " << i + 1;
  }
  StepPlan other = plan_;
  other.tasks.erase(other.tasks.begin() + static_cast<std::ptrdiff_t>(collectives[0]));
  EXPECT_NE(hash_of(other), hash) << "one rank omits a collective";
}

// The tasks between two steps, and only those, belong to no unit. This includes copies for a GPU.
TEST_P(Mutation, TasksWithoutAUnitAreTheBoundary) {
  int boundary = 0;
  for (const Task& task : plan_.tasks) {
    EXPECT_EQ(task.boundary, task.unit < 0) << name_of(task, *case_.model);
    boundary += task.boundary ? 1 : 0;
  }
  EXPECT_GE(boundary, 3);
}

// A task needs other ranks exactly if the table says so of its kind.
TEST_P(Mutation, OnlyTasksWithPeersNeedOtherRanks) {
  for (const Task& task : plan_.tasks) {
    EXPECT_EQ(task.peer >= 0, is_message(task.kind)) << name_of(task, *case_.model);
    if (task.cost.sent_bytes > 0) {
      EXPECT_TRUE(traits_of(task.kind).peers.has_value()) << name_of(task, *case_.model);
    }
  }
}

// A difference in any field that a collective takes from its task changes the hash, even if all else is equal.
TEST_P(Mutation, CollectiveThatDiffersInOneFieldChangesTheHash) {
  const std::pair<const char*, void (*)(Task&)> damages[] = {
      {"kind", [](Task& t) { t.kind = t.kind == TaskKind::gather ? TaskKind::gather_sums : TaskKind::gather; }},
      {"lane", [](Task& t) { t.lane = t.lane == LaneId::gather ? LaneId::reduce : LaneId::gather; }},
      {"unit", [](Task& t) { ++t.unit; }},
      {"micro-batch", [](Task& t) { ++t.micro_batch; }},
      {"part", [](Task& t) { ++t.part; }},
      {"tied", [](Task& t) { t.shared = !t.shared; }},
      {"begin", [](Task& t) { ++t.begin; }},
      {"end", [](Task& t) { ++t.end; }},
      {"elements at once", [](Task& t) { ++t.at_once; }},
      {"steps in which it runs", [](Task& t) { t.when = t.when == When::always ? When::pending : When::always; }},
  };
  const std::uint64_t hash = hash_of(plan_);
  StepPlan other = plan_;
  int collectives = 0;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    if (traits_of(plan_.tasks[t].kind).collective == Collective::none) continue;
    ++collectives;
    for (const auto& [field, damage] : damages) {
      damage(other.tasks[t]);
      EXPECT_NE(hash_of(other), hash) << field << " of task " << t;
      other.tasks[t] = plan_.tasks[t];
    }
  }
  EXPECT_GT(collectives, 4);
  EXPECT_EQ(hash_of(other), hash);
}

// Tasks of a pending update do not run in the first step, and run alone after the last.
TEST(PendingMutation, ATaskThatRunsWithoutItsUpdateIsCaught) {
  PlanCase c = make_case(small(true), 2, 2, 2, device::DType::bf16, false, false, 1, {Recompute::Kind::none, {}});
  c.request.placement.optimizer.tier = Tier::nvme;
  const StepPlan plan = make_plan(c.request);
  ASSERT_EQ(find_violation(plan, kUnlimited), std::nullopt);
  int damages = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const auto& uses = plan.tasks[t].uses;
    // If the task only touches buffers that live from step to step, there is nothing to find.
    if (plan.tasks[t].when != When::pending || std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
          return plan.buffers[static_cast<std::size_t>(use.buffer)].persistent;
        }))
      continue;
    StepPlan damaged = plan;
    damaged.tasks[t].when = When::always;
    EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "task " << t;
    ++damages;
  }
  EXPECT_GT(damages, 10);
}

// A buffer read across the end of a step must be filled by the previous step, after the last write of its source.
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
    if (task.kind == TaskKind::read && task.when == When::always) {
      damaged.tasks[t].uses.clear();
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "nothing is read by task " << t;
      damaged = plan;
      damaged.tasks[t].when = When::pending;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "too late: task " << t;
      ++fills;
    } else if (task.kind == TaskKind::write && task.unit == 0) {
      damaged.tasks[t].when = When::always;
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "written in any step: task " << t;
      damaged = plan;
      for (Task& other : damaged.tasks)
        if (other.kind == TaskKind::read && other.when == When::always) std::swap(other, damaged.tasks[t]);
      EXPECT_NE(find_violation(damaged, kUnlimited), std::nullopt) << "read before task " << t;
      ++writes;
    }
  }
  EXPECT_GT(fills, 2);
  EXPECT_GT(writes, 2);
}

INSTANTIATE_TEST_SUITE_P(Stages, Mutation, testing::Range(0, 8));

}  // namespace
}  // namespace strata::runtime
