#include "runtime/tasks/pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/tasks/probe_model.h"
#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

constexpr float kPassNan = std::numeric_limits<float>::quiet_NaN();

// The block (unit 1), with buffers for everything that its calls use.
struct Passing {
  explicit Passing(int unit = 1) : run(c.request, nullptr, 1) {
    const UnitLayout& layout = run.draft.layout(unit);
    parameters = run.add_buffer(layout.padded() * sizeof(float));
    gradients = run.add_buffer(layout.padded() * sizeof(float));
    x = run.add_buffer(kProbeActivations * sizeof(float));
    y = run.add_buffer(kProbeActivations * sizeof(float));
    residual = run.add_buffer(kProbeActivations * sizeof(float));
    saved = run.add_buffer(8192);
    workspace = run.add_buffer(8192);
    cache = run.add_buffer(4096);
  }
  UnitCall call(int part = -1) const {
    return {.which = {1, part}, .micro_batch = 2, .parameters = parameters, .x = x, .workspace = {workspace, true}};
  }
  void add_forward(int part = -1, bool again = false) {
    Forward{call(part), again, {saved, true}, -1, again ? OutputBuffer{} : OutputBuffer{y, true}}.add(run.draft);
  }
  void add_backward(int part = -1) { Backward{call(part), saved, residual, gradients}.add(run.draft); }
  const ElementRange part_range(int part) const { return run.draft.range_of({1, part}); }
  std::vector<std::size_t> parts_called() const {
    std::vector<std::size_t> out;
    for (const ProbedCall& each : c.model.calls) out.push_back(each.part);
    return out;
  }

  ProbeCase c;
  TaskRun run;
  int parameters, gradients, x, y, residual, saved, workspace, cache;
};

void expect_pass_use(const Task& task, Role role, int buffer, Access access) {
  EXPECT_EQ(use_of(task, role).buffer, buffer) << "role " << static_cast<int>(role);
  EXPECT_EQ(use_of(task, role).access, access) << "role " << static_cast<int>(role);
}

TEST(ForwardTask, UsesTheUnitsInputsAndOutputs) {
  Passing p;
  const ControlBuffers& control = p.run.draft.plan.control;
  Forward{p.call(0), false, {p.saved, false}, p.cache, {p.y, true}}.add(p.run.draft);
  const Task& task = p.run.task();
  EXPECT_EQ(task.kind, TaskKind::forward);
  EXPECT_EQ(task.lane, LaneId::compute);
  EXPECT_EQ(task.unit, 1);
  EXPECT_EQ(task.part, 0);
  EXPECT_EQ(task.micro_batch, 2);
  EXPECT_EQ(task.end, p.part_range(0).end);
  EXPECT_EQ(task.uses.size(), 9u);
  expect_pass_use(task, Role::parameters, p.parameters, Access::read);
  expect_pass_use(task, Role::batch, control.batch, Access::read);
  expect_pass_use(task, Role::state, control.state, Access::read);
  expect_pass_use(task, Role::workspace, p.workspace, Access::write);
  expect_pass_use(task, Role::x, p.x, Access::read);
  expect_pass_use(task, Role::saved, p.saved, Access::update);  // other parts have written their ranges
  expect_pass_use(task, Role::cache, p.cache, Access::update);
  expect_pass_use(task, Role::y, p.y, Access::write);
  expect_pass_use(task, Role::losses, control.losses, Access::update);  // it counts losses that are not finite
  EXPECT_EQ(task.cost.flops, static_cast<double>(p.part_range(0).size()));
  EXPECT_EQ(task.cost.attention_flops, 3);
  EXPECT_EQ(task.cost.bytes, 4);
}

TEST(ForwardTask, RecomputationOnlySavesActivations) {
  Passing p;
  p.add_forward(-1, true);
  EXPECT_EQ(p.run.task().kind, TaskKind::recompute);
  EXPECT_EQ(p.run.task().buffer(Role::y), -1);
}

TEST(BackwardTask, UsesTheUnitsSavedActivationsAndGradients) {
  Passing p;
  p.add_backward(1);
  const Task& task = p.run.task();
  EXPECT_EQ(task.kind, TaskKind::backward);
  EXPECT_EQ(task.lane, LaneId::compute);
  EXPECT_EQ(task.begin, p.part_range(1).begin);
  EXPECT_EQ(task.uses.size(), 8u);
  expect_pass_use(task, Role::parameters, p.parameters, Access::read);
  expect_pass_use(task, Role::saved, p.saved, Access::read);
  expect_pass_use(task, Role::x, p.x, Access::read);
  expect_pass_use(task, Role::residual, p.residual, Access::update);  // dy on entry, dx on exit
  expect_pass_use(task, Role::gradients, p.gradients, Access::write);
  expect_pass_use(task, Role::workspace, p.workspace, Access::write);
  EXPECT_EQ(task.cost.flops, 2 * static_cast<double>(p.run.draft.unit(1).parts()[1].size()));
}

// Part by part, with the same operands: micro-batch 2 of rank 1 of 2 is the step's fifth.
TEST(ForwardTask, CallsThePartsInOrder) {
  Passing p;
  p.add_forward();
  p.run.place();
  p.run.run();
  EXPECT_EQ(p.parts_called(), (std::vector<std::size_t>{0, 1}));
  const ControlBuffers& control = p.run.draft.plan.control;
  for (const ProbedCall& call : p.c.model.calls) {
    EXPECT_EQ(call.what, "forward");
    EXPECT_EQ(call.context.micro_batch, 5u);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(call.context.batch.tokens),
              p.run.bytes(control.batch).data() + 2 * p.c.model.batch.bytes());
    EXPECT_EQ(call.context.scalars, &p.run.state().scalars);
    EXPECT_EQ(call.context.parameters.begin, 0u);
    EXPECT_EQ(call.context.parameters.values.data, p.run.bytes(p.parameters).data());
    EXPECT_EQ(call.context.workspace.data, p.run.bytes(p.workspace).data());
    EXPECT_EQ(call.context.cache.rows, 0u);
    EXPECT_EQ(call.x.data, p.run.bytes(p.x).data());
    EXPECT_EQ(call.x.size, kProbeActivations);
    EXPECT_EQ(call.y.data, p.run.bytes(p.y).data());
    EXPECT_EQ(call.y.size, kProbeActivations);
    EXPECT_EQ(call.saved.data, p.run.bytes(p.saved).data());
  }
}

// A unit that is gathered in parts sees only the current part's parameters, counted from the part's beginning.
TEST(ForwardTask, CallsOnlyItsPart) {
  Passing p;
  p.add_forward(1);
  p.run.place();
  p.run.run();
  EXPECT_EQ(p.parts_called(), (std::vector<std::size_t>{1}));
  EXPECT_EQ(p.c.model.calls[0].context.parameters.begin, p.part_range(1).begin);
}

// A unit's output is counted when it is complete, and not again when it is recomputed.
TEST(ForwardTask, CountsNonFiniteOutputs) {
  Passing p;
  p.add_forward(0);
  p.add_forward(1);
  Forward{p.call(), true, {p.saved, true}, -1, {p.y, true}}.add(p.run.draft);
  p.run.place();
  p.c.model.value = kPassNan;
  const std::uint64_t* const counts = p.run.losses().nonfinite();
  p.run.run(0);
  EXPECT_EQ(counts[1], 0u) << "the last part writes the output";
  p.run.run(1);
  EXPECT_EQ(counts[1], kProbeActivations);
  p.run.run(2);
  EXPECT_EQ(counts[1], kProbeActivations);
  EXPECT_EQ(counts[0], 0u);
}

// A run that generates processes one row at a time, in buffers for several.
TEST(ForwardTask, AGeneratedRowReadsAndWritesOneRow) {
  Passing p;
  Forward{p.call(), false, {p.saved, true}, p.cache, {p.y, true}}.add(p.run.draft);
  p.run.place();
  p.run.context->generation = {.first = 7, .rows = 1};
  p.run.run();
  const ProbedCall& call = p.c.model.calls.at(0);
  EXPECT_EQ(call.x.size, p.c.model.hidden);
  EXPECT_EQ(call.y.size, p.c.model.hidden);
  EXPECT_EQ(call.context.cache.first, 7u);
  EXPECT_EQ(call.context.cache.rows, 1u);
  EXPECT_EQ(call.context.cache.values.data, p.run.bytes(p.cache).data());
}

// Parts run from last to first, and the gradient of the input replaces that of the output. Gaps become zero, because
// they are summed and squared like everything else.
TEST(BackwardTask, CallsThePartsBackwardsAndClearsTheGaps) {
  Passing p;
  p.add_backward();
  p.run.place();
  p.run.run();
  EXPECT_EQ(p.parts_called(), (std::vector<std::size_t>{1, 0}));
  for (const ProbedCall& call : p.c.model.calls) {
    EXPECT_EQ(call.dy.data, p.run.bytes(p.residual).data());
    EXPECT_EQ(call.dx.data, call.dy.data);
    EXPECT_EQ(call.dx.size, kProbeActivations);
    EXPECT_EQ(call.saved.data, p.run.bytes(p.saved).data());
    EXPECT_EQ(call.gradients.begin, 0u);
  }
  const UnitLayout& layout = p.run.draft.layout(1);
  std::vector<float> want(layout.padded());
  for (const runtime::TensorRange& tensor : layout.ranges)
    std::fill_n(&want[tensor.begin], tensor.end - tensor.begin, 1.0f);
  const auto gradients = p.run.as<float>(p.gradients).first(layout.padded());
  EXPECT_TRUE(std::equal(gradients.begin(), gradients.end(), want.begin()));
}

// This part's gaps end with the unit's padding.
TEST(BackwardTask, APartChangesOnlyItsElements) {
  Passing p;
  p.add_backward(1);
  p.run.place();
  p.run.run();
  EXPECT_EQ(p.parts_called(), (std::vector<std::size_t>{1}));
  const ElementRange range = p.part_range(1);
  EXPECT_EQ(p.c.model.calls[0].gradients.begin, range.begin);
  const auto gradients = p.run.as<float>(p.gradients).first(range.size());
  EXPECT_EQ(std::count(gradients.begin(), gradients.begin() + 300, 1.0f), 300);
  EXPECT_EQ(std::count(gradients.begin() + 300, gradients.end(), 0.0f),
            static_cast<std::ptrdiff_t>(range.size() - 300));
}

// The first unit has no input, and looks rows up that backward need not see.
TEST(ForwardTask, TheFirstUnitHasNoInput) {
  Passing p(0);
  Forward{{{0}, 0, p.parameters}, false, {}, -1, {p.y, true}}.add(p.run.draft);
  Backward{{.which = {0}, .micro_batch = 0, .workspace = {p.workspace, true}}, -1, p.residual, p.gradients}.add(
      p.run.draft);
  EXPECT_EQ(p.run.task().buffer(Role::parameters), -1);
  p.run.place();
  p.run.run(0);
  p.run.run(1);
  for (const ProbedCall& call : p.c.model.calls) EXPECT_FALSE(call.x);
  EXPECT_EQ(p.parts_called(), (std::vector<std::size_t>{0, 1, 1, 0}));
}

}  // namespace
}  // namespace strata::runtime
