#include "runtime/tasks/step_boundary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

PlanCase two_micro_batches(bool cyclic) {
  PlanCase c = make_case(small(false), 1, 2, 0, device::DType::bf16, false, false, 1, {});
  if (cyclic) c.request.placement.optimizer.tier = Tier::host;
  return c;
}

struct Expected {
  int buffer;
  Access access;
};
void expect_uses(const Task& task, std::initializer_list<Expected> uses) {
  ASSERT_EQ(task.uses.size(), uses.size());
  const Use* use = task.uses.data();
  for (const Expected& want : uses) {
    EXPECT_EQ(use->buffer, want.buffer);
    EXPECT_EQ(use->access, want.access) << "buffer " << want.buffer;
    ++use;
  }
}

TEST(StepBoundaryTest, HostTasksDeclareTheirUses) {
  const PlanCase c = two_micro_batches(true);
  TaskRun run(c.request);
  StepBoundary::add_copy_scalars(run.draft);
  StepBoundary::add_write(run.draft);
  StepBoundary::add_read(run.draft);
  const ControlBuffers& control = run.draft.plan.host_control;
  const auto& tasks = run.draft.plan.tasks;
  for (const Task& task : tasks) {
    EXPECT_EQ(task.lane, LaneId::host);
    EXPECT_EQ(task.unit, -1);
  }
  EXPECT_EQ(tasks[0].kind, TaskKind::copy_scalars);
  EXPECT_EQ(tasks[0].when, When::pending) << "nothing to carry after a step that left no update";
  expect_uses(tasks[0], {{control.state, Access::read}, {control.pending, Access::write}});
  EXPECT_EQ(tasks[1].kind, TaskKind::host_write);
  EXPECT_EQ(tasks[1].when, When::always);
  expect_uses(tasks[1], {{control.batch, Access::write},
                         {control.state, Access::write},
                         {control.losses, Access::write},
                         {control.squares, Access::write}});
  EXPECT_EQ(tasks[2].kind, TaskKind::host_read);
  expect_uses(tasks[2],
              {{control.batch, Access::update},
               {control.state, Access::read},
               {control.losses, Access::read}});  // the caller may write the batch: all its readers have ended
}

// The step starts from any old contents, including counts of non-finite units.
TEST(StepBoundaryTest, WriteResetsTheStep) {
  const PlanCase c = two_micro_batches(false);
  TaskRun run(c.request);
  StepBoundary::add_write(run.draft);
  run.place();
  StepBoundary boundary(run.draft.plan, run.draft.model, run.storage());
  const ControlBuffers& control = run.draft.plan.control;
  for (const int buffer : {control.state, control.losses, control.squares})
    std::memset(run.bytes(buffer).data(), 0x5a, run.bytes(buffer).size());
  boundary.set({.seed = 11, .learning_rate = 0.5f}, 3);
  boundary.run(run.task());
  EXPECT_EQ(boundary.state().scalars.seed, 11u);
  EXPECT_EQ(boundary.state().scalars.learning_rate, 0.5f);
  EXPECT_EQ(boundary.state().scalars.skip, 0u);
  EXPECT_EQ(boundary.state().requests, 3u);
  EXPECT_EQ(boundary.state().result.loss_sum, 0);
  EXPECT_EQ(boundary.losses().loss.round(), 0);
  for (std::size_t unit = 0; unit < c.model->units.size(); ++unit) EXPECT_EQ(boundary.losses().nonfinite()[unit], 0u);
  EXPECT_EQ(run.squares().squares.round(), 0);
}

// The previous step's decisions are kept apart from the next step's.
TEST(StepBoundaryTest, CopyScalarsKeepsThePreviousStepsScalars) {
  const PlanCase c = two_micro_batches(true);
  TaskRun run(c.request);
  StepBoundary::add_copy_scalars(run.draft);
  StepBoundary::add_write(run.draft);
  run.place();
  StepBoundary boundary(run.draft.plan, run.draft.model, run.storage());
  run.state().scalars = {.learning_rate = 0.25f, .gradient_factor = 2, .skip = 1};
  boundary.set({.learning_rate = 0.125f}, 0);
  for (const Task& task : run.draft.plan.tasks) boundary.run(task);
  const auto& pending = run.as<device::StepScalars>(run.draft.plan.control.pending)[0];
  EXPECT_EQ(pending.learning_rate, 0.25f);
  EXPECT_EQ(pending.gradient_factor, 2.0f);
  EXPECT_EQ(pending.skip, 1u);
  EXPECT_EQ(boundary.state().scalars.learning_rate, 0.125f);
}

TEST(StepBoundaryTest, ReadReturnsTheStepsResult) {
  const PlanCase c = two_micro_batches(false);
  TaskRun run(c.request);
  StepBoundary::add_read(run.draft);
  run.place();
  StepBoundary boundary(run.draft.plan, run.draft.model, run.storage());
  run.state().result.loss_sum = 7;
  run.losses().loss.add(3);
  boundary.set({.seed = 5}, 1);
  boundary.run(run.task());
  EXPECT_EQ(boundary.state().result.loss_sum, 7);
  EXPECT_EQ(boundary.losses().loss.round(), 3);
  EXPECT_EQ(boundary.state().scalars.seed, 0u) << "of the next step, which has not begun";
}

TEST(StepBoundaryTest, NamesTheFirstNonFiniteUnit) {
  const PlanCase c = two_micro_batches(false);
  TaskRun run(c.request);
  run.place();
  const StepBoundary boundary(run.draft.plan, run.draft.model, run.storage());
  EXPECT_EQ(boundary.first_nonfinite_unit(), -1);
  run.losses().nonfinite()[4] = 1;
  EXPECT_EQ(boundary.first_nonfinite_unit(), 4);
  run.losses().nonfinite()[2] = 7;
  EXPECT_EQ(boundary.first_nonfinite_unit(), 2);
}

TEST(StepBoundaryTest, MicroBatchesAreConsecutiveInMemory) {
  const PlanCase c = two_micro_batches(false);
  TaskRun run(c.request);
  run.place();
  const StepBoundary boundary(run.draft.plan, run.draft.model, run.storage());
  const std::byte* const memory = run.bytes(run.draft.plan.control.batch).data();
  const models::BatchRows first = boundary.batch(0), second = boundary.batch(1);
  EXPECT_EQ(first.tokens.size(), kFakeTokens);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(first.tokens.data()), memory);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(second.tokens.data()), memory + c.model->batch.bytes());
}

using device::DType;

// The places of unit 2's state, and the staging memory of a checkpoint.
struct Saving {
  explicit Saving(DType dtype) : c(make_case(small(false), 1, 1, 0, dtype, false, false, 1, {})), run(c.request) {
    StateBuffers& buffers = run.draft.plan.state_buffers[2];
    buffers.parameters = run.add_buffer(4096);
    if (dtype != DType::fp32) buffers.master = run.add_buffer(4096);
    buffers.moment1 = run.add_buffer(4096, Tier::host);
    staging = run.add_buffer(4096, Tier::host);
  }
  const StateBuffers& buffers() const { return run.draft.state_buffers(2); }

  PlanCase c;
  TaskRun run;
  int staging;
};

// The task writes only its staging memory. Meanwhile updates may not run, but forward and backward may.
TEST(SaveTask, ReadsTheUnitsState) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const bool second_moment : {false, true}) {
      Saving s(dtype);
      if (second_moment) s.run.draft.plan.state_buffers[2].moment2 = s.run.add_buffer(4096);
      Save{2, {s.staging, false}}.add(s.run.draft);
      const Task& task = s.run.task();
      EXPECT_EQ(task.kind, TaskKind::save);
      EXPECT_EQ(task.lane, LaneId::checkpoint);
      EXPECT_EQ(task.when, When::checkpoint);
      EXPECT_EQ(task.unit, 2);
      EXPECT_EQ(task.uses.size(), second_moment ? 4u : 3u);
      EXPECT_EQ(use_of(task, Role::staging).buffer, s.staging);
      EXPECT_EQ(use_of(task, Role::staging).access, Access::update);
      EXPECT_EQ(use_of(task, Role::master).buffer, dtype == DType::fp32 ? s.buffers().parameters : s.buffers().master)
          << "in fp32 the parameters are the master";
      EXPECT_EQ(use_of(task, Role::moment1).buffer, s.buffers().moment1);
      EXPECT_EQ(task.buffer(Role::moment2), s.buffers().moment2);
      for (const Use& use : task.uses) EXPECT_EQ(use.access == Access::read, use.role != Role::staging);
    }
}

TEST(SaveTask, TheFirstStartsTheStaging) {
  Saving s(DType::bf16);
  Save{2, {s.staging, true}}.add(s.run.draft);
  EXPECT_EQ(use_of(s.run.task(), Role::staging).access, Access::write);
}

TEST(PublishTask, FollowsAllUsesOfTheStaging) {
  Saving s(DType::bf16);
  Publish{s.staging}.add(s.run.draft);
  const Task& task = s.run.task();
  EXPECT_EQ(task.kind, TaskKind::publish);
  EXPECT_EQ(task.lane, LaneId::checkpoint);
  EXPECT_EQ(task.when, When::checkpoint);
  EXPECT_EQ(task.unit, -1);
  ASSERT_EQ(task.uses.size(), 1u);
  EXPECT_EQ(use_of(task, Role::staging).access, Access::update);
}

class Recorder final : public Saver {
 public:
  void save(device::Lane&, std::size_t unit) override { told.push_back("save " + std::to_string(unit)); }
  void publish(device::Lane&) override { told.emplace_back("publish"); }

  std::vector<std::string> told;
};

TEST(SaveTask, NotifiesTheSaver) {
  Saving s(DType::bf16);
  Save{2, {s.staging, true}}.add(s.run.draft);
  Publish{s.staging}.add(s.run.draft);
  s.run.place();
  Recorder saver;
  s.run.context->saver = &saver;
  s.run.run(0);
  s.run.run(1);
  EXPECT_EQ(saver.told, (std::vector<std::string>{"save 2", "publish"}));
}

}  // namespace
}  // namespace strata::runtime
