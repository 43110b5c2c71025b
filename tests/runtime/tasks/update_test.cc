#include "runtime/tasks/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

using device::bf16;
using device::DType;

// SGD without momentum: master 8, minus 2 (gradient 1, factor 2, rate 1), minus 1 by decay.
constexpr device::Optimizer kOptimizer = {.algorithm = device::Algorithm::sgd, .momentum = 0, .weight_decay = 0.125};
constexpr device::StepScalars kScalars = {.learning_rate = 1, .gradient_factor = 2};
constexpr float kBefore = 8, kDecayed = 5, kPlain = 6;

// The update of unit 1: tensors of 5000, 256 and 9000 elements with gaps between them, every other one with decay.
struct Updated {
  explicit Updated(PlanCase plan_case, int rank = 0, Tier tier = Tier::device)
      : c(std::move(plan_case)), run(c.request, nullptr, rank), part(run.draft.part_size(1)) {
    sum = run.add_buffer(part * sizeof(float), tier);
    master = run.add_buffer(part * sizeof(float), tier);
    moment = run.add_buffer(part * sizeof(float), tier);
    parameters = run.add_buffer(part * 2, tier);
    run.draft.plan.state_buffers[1] = {.parameters = parameters, .master = master, .moment1 = moment};
  }
  Slice slice(int buffer, const ElementRange& elements, std::size_t size) const {
    return {buffer, elements.begin * size, elements.size() * size};
  }
  void add(const ElementRange& elements, std::vector<GradientSource> gradient = {}) {
    if (gradient.empty()) gradient = {{Role::sum, slice(sum, elements, 4)}};
    Update{1,
           elements,
           std::move(gradient),
           slice(master, elements, 4),
           slice(moment, elements, 4),
           {},
           slice(parameters, elements, 2)}
        .add(run.draft);
  }
  void place() {
    run.place(kOptimizer);
    std::fill_n(run.as<float>(sum).begin(), part, 1.0f);
    std::fill_n(run.as<float>(master).begin(), part, kBefore);
    std::fill_n(run.as<float>(moment).begin(), part, 0.0f);
    std::fill_n(run.as<bf16>(parameters).begin(), part, device::from_float<bf16>(1));
    run.state().scalars = kScalars;
  }
  // Expects updated elements [begin, end) of the rank's part, and unchanged ones next to them.
  void expect_updated(std::size_t begin, std::size_t end, std::size_t part_begin = 0) const {
    std::vector<float> want(part, kBefore);
    for (const runtime::TensorRange& tensor : run.draft.layout(1).ranges)
      for (std::size_t i = std::max(tensor.begin, part_begin + begin); i < std::min(tensor.end, part_begin + end); ++i)
        want[i - part_begin] = tensor.decay ? kDecayed : kPlain;
    for (std::size_t i = 0; i < part; ++i) {
      ASSERT_EQ(run.as<float>(master)[i], want[i]) << i;
      ASSERT_EQ(device::to_float(run.as<bf16>(parameters)[i]), want[i] == kBefore ? 1 : want[i]) << i;
    }
  }

  PlanCase c;
  TaskRun run;
  std::size_t part;
  int sum, master, moment, parameters;
};

PlanCase two_updates(int ranks, int stage) {
  return make_case(small(false), ranks, 2, stage, DType::bf16, false, false, 1, {});
}

TEST(UpdateTask, UsesTheStateAndTheGradient) {
  Updated u(two_updates(1, 0));
  u.add({4096, 12288});
  const Task& task = u.run.task();
  EXPECT_EQ(task.lane, LaneId::compute);
  EXPECT_EQ(task.begin, 4096u);
  EXPECT_EQ(task.end, 12288u);
  ASSERT_EQ(task.uses.size(), 5u);
  EXPECT_EQ(use_of(task, Role::state).access, Access::read);
  EXPECT_EQ(use_of(task, Role::sum).access, Access::read);
  EXPECT_EQ(use_of(task, Role::master).access, Access::update);
  EXPECT_EQ(use_of(task, Role::moment1).access, Access::update);
  EXPECT_EQ(use_of(task, Role::parameters).access, Access::write) << "all of them, from the master";
  EXPECT_EQ(use_of(task, Role::master).offset, 4096u * 4);
  EXPECT_EQ(use_of(task, Role::master).bytes, 8192u * 4);
  // Gradient, master (read and written), parameters, and both moments (read and written).
  EXPECT_EQ(task.cost.bytes, 8192.0 * (4 + 4 + 4 + 8));
}

TEST(UpdateTask, MovesTensorsAndLeavesTheGapsBetween) {
  Updated u(two_updates(1, 0));
  u.add({0, u.part});
  u.place();
  u.run.run();
  u.expect_updated(0, u.part);
}

TEST(UpdateTask, ChangesOnlyItsChunk) {
  Updated u(two_updates(1, 0));
  u.add({4096, 12288});
  u.place();
  u.run.run();
  u.expect_updated(4096, 12288);
}

// Counted from its part, whose elements are the unit's second half.
TEST(UpdateTask, ARankUpdatesItsShard) {
  Updated u(two_updates(2, 2), 1);
  u.add({0, u.part});
  ASSERT_LT(u.part, u.run.draft.layout(1).padded());
  u.place();
  u.run.run();
  u.expect_updated(0, u.part, u.part);
}

// In a cyclic plan, the update is the previous step's, with its scalars carried over, and runs where the state is.
TEST(UpdateTask, ACyclicPlanUpdatesThePreviousStep) {
  PlanCase c = two_updates(1, 0);
  c.request.placement.optimizer.tier = Tier::host;
  Updated u(std::move(c), 0, Tier::host);
  u.add({0, u.part});
  EXPECT_EQ(u.run.task().lane, LaneId::host_compute);
  EXPECT_EQ(use_of(u.run.task(), Role::pending).access, Access::read);
  EXPECT_EQ(u.run.task().buffer(Role::state), -1);
  u.place();
  u.run.as<device::StepScalars>(u.run.draft.plan.control.pending)[0] = kScalars;
  u.run.state().scalars = {.learning_rate = 100, .gradient_factor = 100};
  u.run.run();
  u.expect_updated(0, u.part);
}

// A copy that is always transferred must hold the weights even if the update is skipped.
TEST(UpdateTask, ASkippedUpdateRewritesACopyOnly) {
  for (const bool copied : {false, true}) {
    Updated u(two_updates(1, 0));
    u.add({0, u.part});
    if (copied) u.run.draft.plan.state_buffers[1].parameters = u.run.add_buffer(4096);
    u.place();
    u.run.state().scalars.skip = 1;
    u.run.run();
    EXPECT_EQ(u.run.as<float>(u.master)[0], kBefore);
    EXPECT_EQ(u.run.as<float>(u.moment)[0], 0);
    EXPECT_EQ(device::to_float(u.run.as<bf16>(u.parameters)[0]), copied ? kBefore : 1);
  }
}

// A step of one micro-batch: of what unit 2 shares, [4096, 8192), the gradient is both units', in whatever chunk.
TEST(UpdateTask, AddsTheGradientOfASharer) {
  FakeSizes sizes = small(false);
  sizes.parameters[1] = {4096, 4000, 5000};
  sizes.shares = {{2, 1, 1}};
  for (const std::size_t first : {std::size_t{0}, std::size_t{4096}}) {
    Updated u(make_case(sizes, 1, 1, 0, DType::bf16, false, false, 1, {}));
    const ElementRange chunk{first, u.part};
    const int own = u.run.add_buffer(u.part * 2), others = u.run.add_buffer(4096 * 2);
    u.add(chunk, {{Role::gradients, u.slice(own, chunk, 2)}, {Role::shared_gradients, {others, 0, 4096 * 2}}});
    EXPECT_EQ(use_of(u.run.task(), Role::gradients).access, Access::read);
    EXPECT_EQ(use_of(u.run.task(), Role::shared_gradients).access, Access::read);
    u.place();
    std::fill_n(u.run.as<bf16>(own).begin(), u.part, device::from_float<bf16>(1));
    const auto shared = u.run.as<bf16>(others);
    std::fill_n(shared.begin(), 4096, device::from_float<bf16>(0.5f));
    shared[1] = device::from_float<bf16>(1.5f);
    u.run.run();
    const auto master = u.run.as<float>(u.master);
    EXPECT_EQ(master[0], first == 0 ? kDecayed : kBefore);
    EXPECT_EQ(master[4096], kPlain - 1) << "2 * (1 + 0.5)";
    EXPECT_EQ(master[4096 + 1], kPlain - 3);
    EXPECT_EQ(master[4096 + 3999], kPlain - 1);
    EXPECT_EQ(master[8192], kDecayed) << "after the shared elements";
  }
}

}  // namespace
}  // namespace strata::runtime
