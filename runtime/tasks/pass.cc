#include "runtime/tasks/pass.h"

#include <algorithm>

#include "base/error.h"
#include "base/index.h"
#include "device/ops/elementwise.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

models::PartRange parts_of(const models::Unit& unit, const Task& task) {
  return task.part < 0 ? unit.all_parts() : models::PartRange{index(task.part), index(task.part) + 1};
}

// Activations have all rows or, if ranks divide them and the unit takes only its own, this rank's rows. A call must not
// mistake some rows for all, or all for some.
void check_rows(const Draft& draft, int unit, int buffer) {
  if (buffer < 0) return;
  const std::size_t rows = draft.unit(unit).ports().own_rows ? draft.plan.rows : draft.plan.tokens;
  STRATA_CHECK_EQ(draft.whole(buffer).bytes, aligned(draft.bytes_of(rows * draft.model.hidden)));
}

}  // namespace

void UnitCall::use_control(const Draft& draft, Task& task) {
  const ControlBuffers& control = draft.plan.control;
  Draft::use(task, control.batch, Role::batch, Access::read);
  Draft::use(task, control.state, Role::state, Access::read);
  Draft::use_if_any(task, control.constants, Role::constants, Access::read);
}

Task& UnitCall::add(Draft& draft, TaskKind kind) const {
  const ElementRange range = draft.range_of(which);
  Task& task = draft.add_task(kind, LaneId::compute, which, range, micro_batch);
  const models::Unit& unit = draft.unit(which.unit);
  STRATA_CHECK_EQ(x >= 0, kind == TaskKind::backward ? unit.input_in_backward() : unit.ports().input);
  STRATA_CHECK_EQ(shared_parameters >= 0, draft.layout(which.unit).shared.has_value());
  const auto use_pool = [&](int buffer, const ElementRange& elements, Role role, bool whole) {
    if (buffer < 0 || (whole && elements.size() == 0)) return;
    // A part's buffer may be longer than its elements, because buffers are whole pages; only the elements were
    // uploaded.
    const std::size_t bytes = which.part < 0 ? 0 : draft.bytes_of(elements.size());
    Draft::use(task, Slice{buffer, whole ? draft.bytes_of(elements.begin) : 0, bytes}, role, Access::read);
  };
  const ElementRange kept = draft.range_of({which.unit, which.part, PoolKind::frozen});
  const ElementRange quantised = draft.range_of({which.unit, which.part, PoolKind::quantised});
  task.frozen_begin = kept.begin;
  task.quantised_begin = quantised.begin;
  use_pool(parameters, range, Role::parameters, unit_gathered);
  use_pool(frozen, kept, Role::frozen, unit_gathered);
  use_pool(unpacked, quantised, Role::unpacked, false);
  use_control(draft, task);
  Draft::use_if_any(task, workspace, Role::workspace);
  Draft::use_if_any(task, shared_parameters, Role::shared_parameters, Access::read);
  check_rows(draft, which.unit, x);
  Draft::use_if_any(task, x, Role::x, Access::read);
  task.stretch = stretch;
  task.overlaps_exchange = overlaps_exchange;
  Draft::use_if_any(task, partial, Role::partial, Access::write);
  Draft::use_if_any(task, total, Role::total, Access::read);
  return task;
}

models::Work UnitCall::share_of(models::Work work) const {
  if (stretches == 1) return work;
  const double part = leaves_work || overlaps_exchange ? 0.5 : 1;
  return {work.flops * share * part, work.attention_flops * share * part, work.bytes * part / stretches};
}

void UnitCall::set_work(const Draft& draft, Task& task, const models::Work& work) {
  const PlanRequest& r = draft.request;
  const auto seq = static_cast<double>(r.shape.seq);
  task.cost.flops = work.flops;
  task.cost.attention_flops = work.attention_flops * (r.mean_squares > 0 ? r.mean_squares / (seq * seq) : 1);
  task.cost.bytes = work.bytes;
}

models::Context UnitCall::unit_context(const TaskContext& context, const Task& task) {
  const ControlBuffers& control = context.plan.control;
  models::Context c{};
  const models::BatchShape& batch = context.model.batch;
  c.batch = batch.at(context.at<std::byte>(control.batch) + index(task.micro_batch) * batch.bytes());
  c.micro_batch = context.plan.mesh().micro_batch(0, static_cast<std::uint64_t>(task.micro_batch), context.rank);
  c.scalars = &context.at<StepState>(control.state)->scalars;
  if (control.constants >= 0) c.constants = context.at<std::byte>(control.constants);
  if (!context.model.class_weights.empty())
    c.class_weights = reinterpret_cast<const float*>(c.constants + context.model.class_weights_at);
  c.parameters = {context.view(task, Role::parameters), task.begin,
                  context.view(task, Role::frozen),     task.frozen_begin,
                  context.view(task, Role::unpacked),   task.quantised_begin};
  const bool tile = task.step.has_value();  // otherwise all shared parameters are present
  if (const View shared = context.view(task, Role::shared_parameters)) {
    const std::size_t begin = tile ? task.begin : 0;
    const bool frozen = context.layout(task).shared->frozen;
    c.shared = frozen ? models::ParameterRange{.frozen = shared, .frozen_begin = begin}
                      : models::ParameterRange{.values = shared, .begin = begin};
  }
  if (const View gradients = context.view(task, Role::shared_gradients); gradients && !tile) {
    const ElementRange& shared = context.layout(task).shared->elements;
    c.shared_gradients = {gradients.sub(0, shared.size()), shared.begin};
  }
  c.workspace = context.view(task, Role::workspace, DType::fp32);
  if (task.stretch >= 0) c.stretch = index(task.stretch);
  c.overlaps_exchange = task.overlaps_exchange;
  c.partial = context.view(task, Role::partial, DType::fp32);
  c.total = context.view(task, Role::total);
  c.cache = {context.view(task, Role::cache), context.generation.first, context.generation.rows};
  return c;
}

ConstView UnitCall::input(const TaskContext& context, const Task& task) {
  if (const View x = context.view(task, Role::x)) return x.sub(0, activations(context, task));
  return {};
}

std::size_t UnitCall::activations(const TaskContext& context, const Task& task) {
  const std::size_t rows = context.unit(task).ports().own_rows ? context.plan.rows : context.plan.tokens;
  return (context.generation.rows == 1 ? 1 : rows) * context.model.hidden;
}

std::pair<std::size_t, std::size_t> UnitCall::parts(const TaskContext& context, const Task& task) {
  if (task.part >= 0) return {index(task.part), index(task.part) + 1};
  const models::Unit& unit = context.unit(task);
  return {task.kind == TaskKind::backward ? unit.first_backward_part() : 0, unit.parts().size()};
}

void UnitCall::zero_gaps(const TaskContext& context, const Task& task, Lane& lane, const View& gradients) {
  const auto zero_between = [&](std::size_t begin, std::size_t end) {
    const std::size_t from = std::max(begin, task.begin), to = std::min(end, task.end);
    if (from < to) zero(lane, gradients.sub(from - task.begin, to - from));
  };
  const UnitLayout& layout = context.layout(task);
  std::size_t end = 0;
  for (const TensorRange& range : layout.ranges) {
    zero_between(end, range.begin);
    end = range.end;
  }
  zero_between(end, layout.padded());
}

void UnitCall::count_nonfinite(const TaskContext& context, const Task& task, Lane& lane, const View& values) {
  device::count_nonfinite(lane, values, context.at<LossState>(context.plan.control.losses)->nonfinite() + task.unit);
}

void Forward::add(Draft& draft) const {
  const models::Unit& unit = draft.unit(call.which.unit);
  const models::UnitBytes bytes = unit.bytes();
  STRATA_CHECK_EQ(call.workspace.buffer >= 0, bytes.forward_workspace > 0);
  STRATA_CHECK_EQ(saved.buffer >= 0, bytes.saved > 0);
  Task& task = call.add(draft, again ? TaskKind::recompute : TaskKind::forward);
  Draft::use_if_any(task, saved, Role::saved);
  Draft::use_if_any(task, cache, Role::cache, Access::update);
  check_rows(draft, call.which.unit, y.buffer);
  Draft::use_if_any(task, y, Role::y);
  Draft::use(task, draft.plan.control.losses, Role::losses, Access::update);
  UnitCall::set_work(draft, task, call.share_of(unit.work(models::Pass::forward, parts_of(unit, task))));
}

void Forward::run(TaskContext& context, const Task& task, Lane& lane) {
  const ConstView x = UnitCall::input(context, task);
  View y;
  if (const View output = context.view(task, Role::y)) y = output.sub(0, UnitCall::activations(context, task));
  const models::Unit& unit = context.unit(task);
  const auto [first, last] = UnitCall::parts(context, task);
  for (std::size_t part = first; part < last; ++part)
    unit.forward(lane, UnitCall::unit_context(context, task), part, x, y, context.view(task, Role::saved, DType::fp32));
  if (y && last == unit.parts().size() && task.kind == TaskKind::forward && task.buffer(Role::partial) < 0)
    UnitCall::count_nonfinite(context, task, lane, y);
}

void Backward::add(Draft& draft) const {
  const models::Unit& unit = draft.unit(call.which.unit);
  const models::UnitBytes bytes = unit.bytes();
  STRATA_CHECK_EQ(call.workspace.buffer >= 0, bytes.backward_workspace > 0);
  STRATA_CHECK_EQ(call.parameters >= 0 || call.frozen >= 0 || call.unpacked >= 0, unit.ports().parameters_in_backward);
  STRATA_CHECK_EQ(saved >= 0, bytes.saved > 0);
  STRATA_CHECK_EQ(shared_gradients >= 0, draft.layout(call.which.unit).trains_shared());
  Task& task = call.add(draft, TaskKind::backward);
  STRATA_CHECK_EQ(gradients.buffer >= 0, task.end > task.begin);
  Draft::use_if_any(task, saved, Role::saved, Access::read);
  check_rows(draft, call.which.unit, residual);
  Draft::use(task, residual, Role::residual, Access::update);
  if (gradients.buffer >= 0 && call.unit_gathered)
    Draft::use(task, Slice{gradients.buffer, draft.bytes_of(task.begin), draft.bytes_of(task.end - task.begin)},
               Role::gradients, Access::write);
  else
    Draft::use_if_any(task, gradients, Role::gradients);
  Draft::use_if_any(task, shared_gradients, Role::shared_gradients, Access::write);
  UnitCall::set_work(draft, task, call.share_of(unit.work(models::Pass::backward, parts_of(unit, task))));
}

void Backward::run(TaskContext& context, const Task& task, Lane& lane) {
  const ConstView x = UnitCall::input(context, task);
  const View gradients = context.view(task, Role::gradients);
  const View residual = context.view(task, Role::residual).sub(0, UnitCall::activations(context, task));
  const models::Unit& unit = context.unit(task);
  const auto [first, last] = UnitCall::parts(context, task);
  for (std::size_t part = last; part-- > first;)
    unit.backward(lane, UnitCall::unit_context(context, task), part, x, context.view(task, Role::saved, DType::fp32),
                  residual, residual, {gradients, task.begin});
  if (gradients && task.stretch <= 0 && !task.overlaps_exchange) UnitCall::zero_gaps(context, task, lane, gradients);
}

}  // namespace strata::runtime
