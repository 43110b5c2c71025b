#include "runtime/planner/planner.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "runtime/execute/executor.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/proof/proof.h"
#include "tests/runtime/planner/random_case.h"

namespace strata::runtime {
namespace {

// The call that wrote the gradient that the task reduces.
int source_of(const StepPlan& plan, const Task& reduce) {
  const auto wrote = [&](const Task& task) {
    const bool writes = task.kind == TaskKind::loss || task.kind == TaskKind::backward;
    return writes && task.unit == reduce.unit && task.micro_batch == reduce.micro_batch;
  };
  return static_cast<int>(std::find_if(plan.tasks.begin(), plan.tasks.end(), wrote) - plan.tasks.begin());
}

// Gradients travel while backward runs on: their reduction waits for no later call than the one that wrote them, and
// the next call does not wait for it.
TEST(Planner, AReductionOverlapsTheNextCall) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage)
    for (const int accumulation : {1, 3})
      for (const bool tied : {false, true}) {
        const PlanCase c =
            make_case(small(tied), 2, accumulation, zero_stage, device::DType::bf16, false, false, 2, {});
        const StepPlan plan = make_plan(c.request);
        int call = -1, call_before = -1;
        for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
          const Task& task = plan.tasks[static_cast<std::size_t>(t)];
          if (task.lane == LaneId::compute) call_before = std::exchange(call, t);
          for (const int wait : task.waits) {
            const Task& other = plan.tasks[static_cast<std::size_t>(wait)];
            if (task.kind == TaskKind::reduce && other.lane == LaneId::compute) {
              EXPECT_LE(wait, source_of(plan, task)) << "stage " << zero_stage << ", unit " << task.unit;
            }
            if (task.lane == LaneId::compute && other.kind == TaskKind::reduce) {
              EXPECT_LT(source_of(plan, other), call_before) << "stage " << zero_stage << ", unit " << task.unit;
            }
          }
        }
      }
}

// The task's waits for tasks of the previous step.
std::vector<int> waits_across(const StepPlan& plan, std::size_t t) {
  std::vector<int> across;
  for (const int wait : plan.tasks[t].waits)
    if (static_cast<std::size_t>(wait) >= t) across.push_back(wait);
  return across;
}

// If every rank holds whole parameters, those that others updated are gathered while the next step begins. Its forward
// of a unit waits only for that unit.
TEST(Planner, GathersUpdatedParametersDuringTheNextStep) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    const PlanCase c = make_case(small(false), 2, 2, zero_stage, device::DType::bf16, false, false, 2, {});
    const StepPlan plan = make_plan(c.request);
    int awaited = 0;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      if (task.kind != TaskKind::forward && task.kind != TaskKind::loss) continue;
      const std::vector<int> across = waits_across(plan, t);
      if ((zero_stage != 1 && zero_stage != 2) || task.micro_batch > 0) {
        EXPECT_TRUE(across.empty()) << "stage " << zero_stage;
        continue;
      }
      ASSERT_EQ(across.size(), 1u) << "stage " << zero_stage << ", unit " << task.unit;
      const Task& gather = plan.tasks[static_cast<std::size_t>(across[0])];
      EXPECT_EQ(gather.kind, TaskKind::gather_updated);
      EXPECT_EQ(gather.unit, task.unit);
      ++awaited;
    }
    EXPECT_EQ(awaited, zero_stage == 1 || zero_stage == 2 ? static_cast<int>(c.model->units.size()) : 0);
  }
}

// The host's writes wait until the previous step no longer needs their target. Its reads wait for nothing after the
// consensus: the update continues when the step has ended.
TEST(Planner, TheHostWaitsForTheConsensusAndThenForTheUpdate) {
  const PlanCase c = make_case(small(false), 1, 2, 0, device::DType::bf16, false, false, 2, {});
  const StepPlan plan = make_plan(c.request);
  const Task &write = plan.tasks.front(), &read = plan.tasks.back();
  ASSERT_EQ(write.kind, TaskKind::host_write);
  ASSERT_EQ(read.kind, TaskKind::host_read);
  ASSERT_EQ(read.waits.size(), 1u);
  EXPECT_EQ(plan.tasks[static_cast<std::size_t>(read.waits[0])].kind, TaskKind::consensus);
  ASSERT_EQ(write.waits.size(), 1u);
  EXPECT_EQ(plan.tasks[static_cast<std::size_t>(write.waits[0])].kind, TaskKind::update);
  for (std::size_t t = 1; t < plan.tasks.size(); ++t)
    EXPECT_TRUE(waits_across(plan, t).empty()) << "task " << t << " begins after the host's task, which has waited";
}

// Sharded parameters of the first units are gathered as soon as they are updated, while other units are updated. A
// gather before the host writes waits at most for its own unit's update, and for no later one.
TEST(Planner, GathersTheFirstUnitsDuringTheLastUpdates) {
  const PlanCase c = make_case(small(false), 8, 2, 3, device::DType::bf16, false, false, 1, {});
  const StepPlan plan = make_plan(c.request);
  std::size_t t = 0;
  for (; plan.tasks[t].kind != TaskKind::host_write; ++t) {
    const Task& task = plan.tasks[t];
    EXPECT_EQ(task.kind, TaskKind::gather);
    bool own = false;
    for (const int wait : waits_across(plan, t)) {
      const Task& other = plan.tasks[static_cast<std::size_t>(wait)];
      if (other.kind != TaskKind::update) continue;
      EXPECT_LE(other.unit, task.unit);
      own = own || other.unit == task.unit;
    }
    EXPECT_TRUE(own) << "unit " << task.unit;
  }
  EXPECT_EQ(t, 2u) << "the first unit's, and one ahead";
}

// A checkpoint reads the previous step's state while the next step computes. Each unit's update waits until it is read.
TEST(Planner, AnUpdateWaitsForTheCheckpointToReadItsUnit) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    PlanCase c = make_case(small(false), 2, 2, 2, device::DType::bf16, false, false, 2, {});
    c.request.placement.optimizer.tier = tier;
    c.request.checkpoint_staging = 4096;
    const StepPlan plan = make_plan(c.request);
    std::set<int> saved;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t)
      for (const int wait : plan.tasks[t].waits) {
        const Task &task = plan.tasks[t], &other = plan.tasks[static_cast<std::size_t>(wait)];
        if (other.lane != LaneId::checkpoint) continue;
        EXPECT_EQ(other.kind, TaskKind::save) << "nothing waits until the checkpoint is durable";
        EXPECT_EQ(task.unit, other.unit);
        EXPECT_EQ(task.kind, tier == Tier::nvme ? TaskKind::write : TaskKind::update);
        saved.insert(other.unit);
      }
    EXPECT_EQ(saved.size(), c.model->units.size());
  }
}

// Thousands of random plans are proven.
TEST(Planner, EveryPlanIsValid) {
  ::setenv("RC_PARAMS", "max_success=2500", 0);
  const bool held = rc::check("no violation", [] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    const auto violation = find_violation(plan, {plan.memory[0].peak, plan.memory[1].peak, plan.memory[2].peak});
    if (violation) RC_FAIL(*violation);
  });
  EXPECT_TRUE(held);
}

// The executor's meter counts buffers as they come and go; it must find what was predicted, in every step.
TEST(Planner, PredictedMemoryIsMeasured) {
  const bool held = rc::check("predicted equals measured", [] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    MemoryMeter meter(plan);
    for (int step = 0; step < 2; ++step)
      for (std::size_t t = 0; t < plan.tasks.size(); ++t) meter.issue(t);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      RC_ASSERT(meter.peak()[tier].peak == plan.memory[tier].peak);
      RC_ASSERT(meter.peak()[tier].by_kind == plan.memory[tier].by_kind);
    }
  });
  EXPECT_TRUE(held);
}

// Offsets stay close to the bytes alive at once, on average and in the worst random case. Packing is worst for a chain
// of parts of unequal sizes, each overlapping the next, if little else is alive.
TEST(Planner, PackingIsTight) {
  double ratios = 0;
  int count = 0;
  const bool held = rc::check("no peak is twice the bytes alive", [&] {
    const PlanCase c = random_case();
    const StepPlan plan = make_plan(c.request);
    const auto lives = memory_lifetimes_of(plan);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      std::size_t most = 0;
      for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
        std::size_t alive = 0;
        for (std::size_t b = 0; b < lives.size(); ++b)
          if (static_cast<std::size_t>(plan.buffers[b].tier) == tier && lives[b].first <= t && t <= lives[b].last)
            alive += plan.buffers[b].bytes;
        most = std::max(most, alive);
      }
      const std::size_t peak = plan.memory[tier].peak;
      RC_ASSERT(peak >= most);
      RC_ASSERT(peak <= 2 * most);
      if (most == 0) continue;
      ratios += static_cast<double>(peak) / static_cast<double>(most);
      ++count;
    }
  });
  EXPECT_TRUE(held);
  EXPECT_LT(ratios / count, 1.02) << "of " << count << " tiers";
}

struct Bytes {
  std::uint64_t all_to_all, all_gather;
};

Bytes bytes_of(int zero_stage, int ranks, int accumulation, bool vertical, bool fast) {
  const PlanCase c =
      make_case(small(false), ranks, accumulation, zero_stage, device::DType::bf16, fast, vertical, 0, {});
  const StepPlan plan = make_plan(c.request);
  return {plan.comm_bytes.all_to_all, plan.comm_bytes.all_gather};
}

// Psi is the number of padded elements of the model. Every figure is multiplied by (W - 1) / W.
TEST(Planner, CommunicationFollowsTheFormulas) {
  for (const int w : {2, 4})
    for (const int g : {1, 3}) {
      const FakeModel model(small(false));
      std::uint64_t psi = 0, blocks = 0;
      const Layout layout = make_layout(model, {w});
      for (std::size_t u = 0; u < layout.units.size(); ++u) {
        psi += layout.units[u].shard() * static_cast<std::uint64_t>(w - 1);
        if (u > 0 && u + 1 < layout.units.size()) blocks += layout.units[u].shard() * static_cast<std::uint64_t>(w - 1);
      }
      const auto steps = static_cast<std::uint64_t>(g);
      EXPECT_EQ(bytes_of(0, w, g, false, false).all_to_all, steps * psi * 2);
      EXPECT_EQ(bytes_of(0, w, g, false, false).all_gather, psi * 4) << "fp32 gradient sums";
      for (const int s : {1, 2}) {
        EXPECT_EQ(bytes_of(s, w, g, false, false).all_to_all, steps * psi * 2);
        EXPECT_EQ(bytes_of(s, w, g, false, false).all_gather, psi * 2) << "updated parameters";
      }
      EXPECT_EQ(bytes_of(3, w, g, false, false).all_to_all, steps * psi * 2);
      // Blocks are gathered twice per micro-batch, embedding and head once. Without look-ahead, only neighbours are
      // reused.
      EXPECT_LE(bytes_of(3, w, g, false, false).all_gather, steps * (psi + blocks) * 2);
      EXPECT_GT(bytes_of(3, w, g, false, false).all_gather, steps * psi * 2);
      EXPECT_LE(bytes_of(3, w, g, true, false).all_gather, (psi + blocks) * 2);
      for (int s = 0; s < 4; ++s) EXPECT_EQ(bytes_of(s, w, g, true, true).all_to_all, psi * 2) << "fast: once per step";
    }
}

TEST(Planner, HigherStagesNeedLessMemory) {
  std::size_t previous = std::numeric_limits<std::size_t>::max();
  for (int s = 0; s < 4; ++s) {
    FakeSizes sizes = small(false);
    for (auto& lengths : sizes.parameters) lengths.push_back(400000);
    const PlanCase c = make_case(sizes, 8, 2, s, device::DType::bf16, false, false, 0, {});
    const std::size_t peak = make_plan(c.request).memory[0].peak;
    EXPECT_LT(peak, previous) << "stage " << s;
    previous = peak;
  }
}

TEST(Planner, RecomputationTradesActivations) {
  const auto activations = [](Recompute::Kind kind) {
    FakeSizes sizes = small(true);
    for (int extra = 0; extra < 13; ++extra) sizes.parameters.insert(sizes.parameters.begin() + 1, {5000});
    const PlanCase c = make_case(sizes, 1, 1, 0, device::DType::bf16, false, false, 2, {kind, {}});
    return make_plan(c.request).memory[0].by_kind[static_cast<std::size_t>(Kind::activations)];
  };
  EXPECT_LT(activations(Recompute::Kind::sqrt), activations(Recompute::Kind::none));
  EXPECT_LT(activations(Recompute::Kind::block), activations(Recompute::Kind::none));
}

TEST(Planner, AttentionCostsTheSquareOfDocumentLengths) {
  PlanCase c = make_case(small(false), 2, 2, 0, device::DType::bf16, false, false, 2, {});
  const auto work = [&](double mean_squares) {
    c.request.mean_squares = mean_squares;
    std::pair<double, double> sum{0, 0};  // of attention; of all else
    for (const Task& task : make_plan(c.request).tasks)
      sum = {sum.first + task.cost.attention_flops, sum.second + task.cost.flops + task.cost.bytes};
    return sum;
  };
  const auto whole = work(0);
  EXPECT_GT(whole.first, 0);
  EXPECT_EQ(work(16 * 16), whole) << "sequences of 16 tokens";
  EXPECT_EQ(work(4 * 16), std::pair(whole.first / 4, whole.second)) << "four documents each";
}

TEST(Planner, UnknownBlockIsRefused) {
  const FakeModel model(small(true));  // of three blocks
  EXPECT_THROW(segments_of({Recompute::Kind::list, {3}}, model), Error);
  EXPECT_NO_THROW(segments_of({Recompute::Kind::list, {2}}, model));
}

}  // namespace
}  // namespace strata::runtime
