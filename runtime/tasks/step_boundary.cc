#include "runtime/tasks/step_boundary.h"

#include <cstring>

#include "base/error.h"

namespace strata::runtime {

StepBoundary::StepBoundary(const StepPlan& plan, const models::Model& model, const Storage& storage)
    : plan_(plan), control_(plan.host_control), model_(model), storage_(storage) {}

void StepBoundary::add_copy_scalars(Draft& draft) {
  const ControlBuffers& control = draft.plan.host_control;
  Task& copy = draft.add_task(TaskKind::copy_scalars, LaneId::host, -1);
  copy.when = When::pending;
  Draft::use(copy, control.state, Role::state, Access::read);
  Draft::use(copy, control.pending, Role::pending, Access::write);
}

void StepBoundary::add_write(Draft& draft) {
  const ControlBuffers& control = draft.plan.host_control;
  Task& write = draft.add_task(TaskKind::host_write, LaneId::host, -1);
  Draft::use(write, control.batch, Role::batch, Access::write);
  Draft::use(write, control.state, Role::state, Access::write);
  Draft::use(write, control.losses, Role::losses, Access::write);
  Draft::use_if_any(write, control.squares, Role::squares, Access::write);
}

void StepBoundary::add_read(Draft& draft) {
  const ControlBuffers& control = draft.plan.host_control;
  Task& read = draft.add_task(TaskKind::host_read, LaneId::host, -1);
  Draft::use(read, control.batch, Role::batch, Access::update);
  Draft::use(read, control.state, Role::state, Access::read);
  Draft::use(read, control.losses, Role::losses, Access::read);
  Draft::use_if_any(read, control.scores, Role::scores, Access::read);
}

void StepBoundary::run(const Task& task) {
  auto* state = at<StepState>(control_.state);
  if (task.kind == TaskKind::copy_scalars) *at<device::StepScalars>(control_.pending) = state->scalars;
  if (task.kind != TaskKind::host_write) return;
  *state = StepState{};
  state->scalars = scalars_;
  state->requests = requests_;
  std::memset(at<std::byte>(control_.losses), 0, LossState::bytes(model_.units.size()));
  if (control_.squares >= 0) *at<SquareState>(control_.squares) = SquareState{};
}

models::BatchRows StepBoundary::batch(int micro_batch) const {
  const auto g = static_cast<std::size_t>(micro_batch);
  const std::size_t bytes = model_.batch.bytes();
  STRATA_CHECK_LE((g + 1) * bytes, plan_.buffers[static_cast<std::size_t>(control_.batch)].bytes);
  return model_.batch.rows(at<std::byte>(control_.batch) + g * bytes);
}

int StepBoundary::first_nonfinite_unit() const {
  const std::uint64_t* const counts = losses().nonfinite();
  for (std::size_t unit = 0; unit < model_.units.size(); ++unit)
    if (counts[unit]) return static_cast<int>(unit);
  return -1;
}

void StepBoundary::set(const device::StepScalars& scalars, std::uint64_t requests) {
  scalars_ = scalars;
  requests_ = requests;
}

void Save::add(Draft& draft) const {
  const StateBuffers& buffers = draft.state_buffers(unit);
  Task& task = draft.add_task(TaskKind::save, LaneId::checkpoint, unit);
  task.when = When::checkpoint;
  Draft::use(task, staging, Role::staging);
  Draft::use_if_any(task, draft.fp32() ? buffers.parameters : buffers.master, Role::master, Access::read);
  Draft::use_if_any(task, buffers.frozen, Role::frozen, Access::read);
  Draft::use_if_any(task, buffers.quantised, Role::quantised, Access::read);
  Draft::use_if_any(task, buffers.moment1, Role::moment1, Access::read);
  Draft::use_if_any(task, buffers.moment2, Role::moment2, Access::read);
}

void Save::run(TaskContext& context, const Task& task, device::Lane& lane) {
  context.saver->save(lane, static_cast<std::size_t>(task.unit));
}

void Publish::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::publish, LaneId::checkpoint, -1);
  task.when = When::checkpoint;
  Draft::use(task, staging, Role::staging, Access::update);
}

void Publish::run(TaskContext& context, const Task&, device::Lane& lane) {
  context.saver->publish(lane);
}

}  // namespace strata::runtime
