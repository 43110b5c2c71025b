#include "runtime/tasks/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/runtime/tasks/probe_model.h"
#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

using models::LossStep;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The head (unit 2), which shares a tensor of unit 0.
struct Losing {
  explicit Losing(bool forward_only = false) : c(forward_only), run(c.request, nullptr, 1) {
    own = run.add_buffer(run.draft.layout(2).padded() * sizeof(float));
    gradients = run.add_buffer(run.draft.layout(2).padded() * sizeof(float));
    table = run.add_buffer(run.draft.layout(0).padded() * sizeof(float));
    d_table = run.add_buffer(run.draft.layout(0).padded() * sizeof(float));
    x = run.add_buffer(kProbeActivations * sizeof(float));
    residual = run.add_buffer(kProbeActivations * sizeof(float));
    workspace = run.add_buffer(4096);
  }
  UnitCall call() const {
    return {.which = {2},
            .micro_batch = 1,
            .parameters = own,
            .shared_parameters = table,
            .x = x,
            .workspace = {workspace, true}};
  }
  void add_scores() { run.draft.plan.control.scores = run.add_buffer(c.model.loss_rows() * 16 * sizeof(float)); }
  const ProbedCall& called() const { return c.model.calls.at(0); }

  ProbeCase c;
  TaskRun run;
  int own, gradients, table, d_table, x, residual, workspace;
};

void expect_use(const Task& task, Role role, int buffer, Access access) {
  EXPECT_EQ(use_of(task, role).buffer, buffer) << "role " << static_cast<int>(role);
  EXPECT_EQ(use_of(task, role).access, access) << "role " << static_cast<int>(role);
}

TEST(LossTask, WritesItsGradientsAndThoseOfSharedTensors) {
  Losing l;
  Loss{l.call(), {l.residual}, {l.gradients}, {l.d_table}}.add(l.run.draft);
  const Task& task = l.run.task();
  EXPECT_EQ(task.kind, TaskKind::loss);
  EXPECT_EQ(task.lane, LaneId::compute);
  EXPECT_EQ(task.uses.size(), 10u);
  expect_use(task, Role::parameters, l.own, Access::read);
  expect_use(task, Role::shared_parameters, l.table, Access::read);
  expect_use(task, Role::x, l.x, Access::read);
  expect_use(task, Role::losses, l.run.draft.plan.control.losses, Access::update);
  expect_use(task, Role::residual, l.residual, Access::write);
  expect_use(task, Role::gradients, l.gradients, Access::write);
  expect_use(task, Role::shared_gradients, l.d_table, Access::write);
  EXPECT_EQ(task.cost.flops, 30) << "with gradients";

  l.run.place();
  l.run.losses().loss.add(2);  // of the micro-batches before
  l.c.model.value = 4;
  l.run.run();
  EXPECT_EQ(l.called().what, "loss");
  EXPECT_EQ(l.called().context.micro_batch, 3u) << "micro-batch 1 of rank 1 of 2";
  EXPECT_EQ(l.called().context.shared.values.data, l.run.bytes(l.table).data());
  const ElementRange shared = l.run.draft.layout(2).shared->elements;
  EXPECT_EQ(l.called().context.shared_gradients.values.data, l.run.bytes(l.d_table).data());
  EXPECT_EQ(l.called().context.shared_gradients.values.size, shared.size());
  EXPECT_EQ(l.called().dx.data, l.run.bytes(l.residual).data());
  EXPECT_EQ(l.called().dx.size, kProbeActivations);
  EXPECT_FALSE(l.called().context.scores);
  EXPECT_EQ(l.run.losses().loss.round(), 3.5);
  EXPECT_EQ(l.run.losses().nonfinite()[2], 0u);
  const auto gradients = l.run.as<float>(l.gradients).first(l.run.draft.layout(2).padded());
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), 1.0f), 300);
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), 0.0f), static_cast<std::ptrdiff_t>(gradients.size()) - 300)
      << "gaps hold zeros";
}

TEST(LossTask, CountsNonFiniteGradients) {
  Losing l;
  Loss{l.call(), {l.residual}, {l.gradients}, {l.d_table}}.add(l.run.draft);
  l.run.place();
  l.c.model.value = kNan;
  l.run.run();
  EXPECT_EQ(l.run.losses().nonfinite()[2], kProbeActivations);
}

// A classifier's scores stay in memory that the host reads.
TEST(LossTask, LeavesScoresInForwardOnlyRuns) {
  Losing l(true);
  l.add_scores();
  Loss{l.call()}.add(l.run.draft);
  EXPECT_EQ(use_of(l.run.task(), Role::scores).access, Access::write);
  EXPECT_EQ(l.run.task().buffer(Role::gradients), -1);
  EXPECT_EQ(l.run.task().cost.flops, 10) << "without gradients";
  l.run.place();
  l.run.run();
  EXPECT_FALSE(l.called().dx);
  EXPECT_EQ(l.called().context.scores.data, l.run.bytes(l.run.draft.plan.control.scores).data());
  EXPECT_EQ(l.called().context.scores.size, l.c.model.loss_rows() * 16);
  EXPECT_EQ(l.run.losses().loss.round(), 1.5);
}

TEST(LossTask, ReturnsLogitsIfTheRunGenerates) {
  Losing l(true);
  l.add_scores();
  Loss{.call = l.call(), .cache = l.own}.add(l.run.draft);
  expect_use(l.run.task(), Role::cache, l.own, Access::update);
  l.run.place();
  l.run.context->generation = {.first = 3, .rows = 1};
  l.run.run();
  EXPECT_EQ(l.called().what, "logits");
  EXPECT_EQ(l.called().x.size, l.c.model.hidden);
  EXPECT_EQ(l.called().y.size, l.c.model.vocabulary);
  EXPECT_EQ(l.called().context.cache.values.data, l.run.bytes(l.own).data());
  EXPECT_EQ(l.run.losses().loss.round(), 0);
}

// One step of the loss by tiles. range: that of the parameters' holder.
TiledLoss step(const Losing& l, LossStep which) {
  const bool table = which == LossStep::statistics || which == LossStep::gradients;
  TiledLoss out{.which = {2, table ? 0 : -1},
                .micro_batch = 1,
                .step = which,
                .gathered = {table ? 0 : 2, 0},
                .range = l.run.draft.range_of({table ? 0 : 2, 0}),
                .parameters = table ? l.table : l.own,
                .workspace = {l.workspace, which == LossStep::norm}};
  if (!table) out.x = l.x;
  if (which == LossStep::finish) out.residual = l.residual;
  if (which == LossStep::gradients) out.gradients = l.d_table;
  if (which == LossStep::finish) out.gradients = l.gradients;
  return out;
}

TEST(TiledLossTask, EachStepDeclaresItsUses) {
  for (const LossStep which : {LossStep::norm, LossStep::statistics, LossStep::gradients, LossStep::finish}) {
    SCOPED_TRACE(static_cast<int>(which));
    const bool table = which == LossStep::statistics || which == LossStep::gradients;
    const bool finishes = which == LossStep::finish;
    Losing l;
    step(l, which).add(l.run.draft);
    const Task& task = l.run.task();
    EXPECT_EQ(task.kind, TaskKind::loss);
    EXPECT_EQ(task.step, which);
    EXPECT_EQ(task.unit, 2);
    EXPECT_EQ(task.part, table ? 0 : -1);
    expect_use(task, table ? Role::shared_parameters : Role::parameters, table ? l.table : l.own, Access::read);
    EXPECT_EQ(task.buffer(table ? Role::parameters : Role::shared_parameters), -1);
    expect_use(task, Role::workspace, l.workspace, which == LossStep::norm ? Access::write : Access::update);
    EXPECT_EQ(task.buffer(Role::x), table ? -1 : l.x);
    EXPECT_EQ(task.buffer(Role::losses), finishes ? l.run.draft.plan.control.losses : -1);
    EXPECT_EQ(task.buffer(Role::residual), finishes ? l.residual : -1);
    EXPECT_EQ(task.buffer(Role::shared_gradients), which == LossStep::gradients ? l.d_table : -1);
    EXPECT_EQ(task.buffer(Role::gradients), finishes ? l.gradients : -1);
    EXPECT_EQ(task.cost.flops, static_cast<double>(task.end - task.begin));
  }
}

TEST(TiledLossTask, StepsCallTheUnitWithTheirTile) {
  Losing l;
  for (const LossStep which : {LossStep::norm, LossStep::statistics, LossStep::gradients, LossStep::finish})
    step(l, which).add(l.run.draft);
  l.run.place();
  l.c.model.value = kNan;
  for (std::size_t i = 0; i < 4; ++i) l.run.run(i);
  const Probed& calls = l.c.model.calls;
  ASSERT_EQ(calls.size(), 4u);
  const char* const names[] = {"norm", "statistics", "gradients", "finish"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(calls[i].what, names[i]);
    EXPECT_EQ(calls[i].adds_loss, i == 3) << "the loss is known at the end";
    EXPECT_EQ(static_cast<bool>(calls[i].x), i == 0 || i == 3);
    EXPECT_EQ(static_cast<bool>(calls[i].dx), i == 3);
  }
  EXPECT_EQ(calls[1].context.shared.values.data, l.run.bytes(l.table).data());
  EXPECT_EQ(calls[2].gradients.values.data, l.run.bytes(l.d_table).data());
  EXPECT_EQ(calls[2].gradients.values.size, l.run.draft.range_of({0, 0}).size());
  EXPECT_EQ(l.run.losses().loss.round(), 1.5);
  EXPECT_EQ(l.run.losses().nonfinite()[2], kProbeActivations);
  const auto gradients = l.run.as<float>(l.gradients).first(l.run.draft.layout(2).padded());
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), 0.0f), static_cast<std::ptrdiff_t>(gradients.size()) - 300);
}

}  // namespace
}  // namespace strata::runtime
