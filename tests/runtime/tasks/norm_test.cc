#include "runtime/tasks/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/comm/run_threads.h"
#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

using device::bf16;
using device::DType;

void fill(std::span<bf16> values, float x) {
  std::fill(values.begin(), values.end(), device::from_float<bf16>(x));
}

// Rank 1 processes its shard. It holds nothing else of the sum, or, if the optimizer is not sharded, its shard follows
// rank 0's.
TEST(NormTask, TakesTheRanksOwnPartOfTheSum) {
  for (const int stage : {0, 3}) {
    const PlanCase c = make_case(small(false), 2, 1, stage, DType::bf16, false, false, 1, {});
    TaskRun run(c.request, nullptr, 1);
    const UnitLayout& layout = run.draft.layout(1);
    const bool whole = stage == 0;
    const int sum = run.add_buffer((whole ? layout.padded() : layout.shard()) * sizeof(float));
    Norm{.unit = 1, .sum = sum}.add(run.draft);
    const Task& task = run.task();
    EXPECT_EQ(task.lane, LaneId::reduce);
    EXPECT_EQ(task.unit, 1);
    ASSERT_EQ(task.uses.size(), 2u);
    EXPECT_EQ(use_of(task, Role::sum).buffer, sum);
    EXPECT_EQ(use_of(task, Role::sum).access, Access::read);
    EXPECT_EQ(use_of(task, Role::squares).buffer, run.draft.plan.control.squares);
    EXPECT_EQ(use_of(task, Role::squares).access, Access::update);
    EXPECT_EQ(task.cost.bytes, static_cast<double>(layout.shard() * sizeof(float)));

    run.place();
    const auto values = run.as<float>(sum).first(whole ? layout.padded() : layout.shard());
    std::fill(values.begin(), values.end(), 2.0f);
    if (whole) std::fill_n(values.begin(), layout.shard(), 100.0f);
    run.squares().squares.add(5);  // of another unit
    run.run();
    EXPECT_EQ(run.squares().squares.round(), 5 + 4.0 * static_cast<double>(layout.shard()));
  }
}

// A step of one micro-batch has no sums. The gradient of shared elements is the holder's plus the sharer's.
TEST(NormTask, AddsTheGradientOfASharer) {
  FakeSizes sizes = small(false);
  sizes.parameters[1] = {4096, 4000, 5000};
  sizes.shares = {{2, 1, 1}};
  const PlanCase c = make_case(sizes, 1, 1, 0, DType::bf16, false, false, 1, {});
  TaskRun run(c.request);
  const std::size_t padded = run.draft.layout(1).padded(), block = 4096;
  ASSERT_EQ(run.draft.layout(2).shared->elements.begin, block);
  ASSERT_EQ(run.draft.layout(2).shared->elements.end, 2 * block);
  const int own = run.add_buffer(padded * 2), others = run.add_buffer(block * 2);
  Norm{.unit = 1, .gradients = own, .shared_gradients = {others}}.add(run.draft);
  EXPECT_EQ(use_of(run.task(), Role::gradients).access, Access::read);
  EXPECT_EQ(use_of(run.task(), Role::shared_gradients).access, Access::read);
  EXPECT_EQ(use_of(run.task(), Role::shared_gradients).buffer, others);
  EXPECT_EQ(run.task().cost.bytes, static_cast<double>((padded + block) * 2));

  run.place();
  fill(run.as<bf16>(own), 1);
  fill(run.as<bf16>(own).subspan(2 * block), 3);  // after the shared elements
  fill(run.as<bf16>(others), 4);
  run.run();
  const double want = block * 1.0 + block * 25.0 + static_cast<double>(padded - 2 * block) * 9;
  EXPECT_EQ(run.squares().squares.round(), want);
}

TEST(ConsensusTask, SendsItsMessageToTheOthers) {
  for (const int ranks : {1, 3}) {
    const PlanCase c = make_case(small(false), ranks, 1, 0, DType::bf16, false, false, 1, {});
    TaskRun run(c.request);
    Consensus{}.add(run.draft);
    const Task& task = run.task();
    const ControlBuffers& control = run.draft.plan.control;
    EXPECT_EQ(task.lane, LaneId::reduce);
    EXPECT_EQ(use_of(task, Role::squares).buffer, control.squares);
    EXPECT_EQ(use_of(task, Role::losses).buffer, control.losses);
    EXPECT_EQ(use_of(task, Role::state).buffer, control.state);
    for (const Role role : {Role::squares, Role::losses, Role::state})
      EXPECT_EQ(use_of(task, role).access, Access::update);
    EXPECT_EQ(use_of(task, Role::staging).access, Access::write);
    const auto others = static_cast<std::uint64_t>(ranks - 1);
    EXPECT_EQ(run.draft.plan.comm_bytes.consensus, others * sizeof(device::StepMessage));
    EXPECT_EQ(task.cost.sent_bytes, static_cast<double>(others * sizeof(device::StepMessage)));
    const auto& messages = run.draft.plan.buffers[static_cast<std::size_t>(use_of(task, Role::staging).buffer)];
    EXPECT_GE(messages.bytes, static_cast<std::size_t>(ranks) * sizeof(device::StepMessage));
    EXPECT_FALSE(messages.persistent);
  }
}

// All ranks have the norm, loss and stop requests of all ranks, and so the same factor. If one rank's values are not
// finite, all skip the step.
TEST(ConsensusTask, AllRanksMakeTheSameDecision) {
  for (const bool finite : {true, false})
    comm::run_threads(2, [&](comm::World& world) {
      const PlanCase c = make_case(small(false), 2, 1, 0, DType::bf16, false, false, 1, {});
      TaskRun run(c.request, &world);
      Consensus{}.add(run.draft);
      run.place();
      run.state().scalars = {.unscale = 0.5f, .max_grad_norm = 1};
      run.state().requests = static_cast<std::uint64_t>(world.rank());
      run.squares().squares.add(world.rank() == 0 ? 9 : 16);
      run.losses().loss.add(1 + world.rank());
      if (!finite && world.rank() == 1) run.losses().loss.add(std::numeric_limits<double>::quiet_NaN());
      run.run();
      const StepState& state = run.state();
      EXPECT_EQ(state.result.requests, 1u);
      EXPECT_EQ(state.result.gradient_norm, 2.5);
      EXPECT_EQ(state.scalars.skip, finite ? 0u : 1u);
      if (!finite) return;
      EXPECT_EQ(state.result.loss_sum, 3);
      EXPECT_NEAR(state.scalars.gradient_factor, 0.5 / (2.5 + 1e-6), 1e-7);
    });
}

}  // namespace
}  // namespace strata::runtime
