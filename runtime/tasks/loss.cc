#include "runtime/tasks/loss.h"

#include "base/error.h"
#include "device/ops/elementwise.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

View gradient_of_input(const TaskContext& context, const Task& task) {
  if (const View residual = context.view(task, Role::residual))
    return residual.sub(0, UnitCall::activations(context, task));
  return {};
}

device::ExactSum* loss_of(const TaskContext& context) {
  return &context.at<LossState>(context.plan.control.losses)->loss;
}

// Ranks that share each layer compute the same loss: the first of them counts it.
void count_once(const TaskContext& context, Lane& lane) {
  if (context.rank.tensor == 0) return;
  static_assert(sizeof(device::ExactSum) % sizeof(float) == 0);
  zero(lane,
       View{reinterpret_cast<std::byte*>(loss_of(context)), sizeof(device::ExactSum) / sizeof(float), DType::fp32});
}

void run_step(const TaskContext& context, const Task& task, Lane& lane) {
  const bool finishes = *task.step == models::LossStep::finish;
  const View dx = gradient_of_input(context, task), own = context.view(task, Role::gradients);
  View gradients = own ? own : context.view(task, Role::shared_gradients);
  if (gradients) gradients = gradients.sub(0, task.end - task.begin);
  context.model.loss_unit().loss_step(lane, UnitCall::unit_context(context, task), *task.step,
                                      static_cast<std::size_t>(task.part), UnitCall::input(context, task),
                                      finishes ? loss_of(context) : nullptr, dx, {gradients, task.begin});
  if (finishes) count_once(context, lane);
  if (own) UnitCall::zero_gaps(context, task, lane, gradients);
  if (dx) UnitCall::count_nonfinite(context, task, lane, dx);
}

}  // namespace

void Loss::add(Draft& draft) const {
  const models::LossUnit& unit = draft.model.loss_unit();
  const bool learns = !draft.request.forward_only;
  STRATA_CHECK_EQ(residual.buffer >= 0, learns);
  const UnitLayout& layout = draft.layout(call.which.unit);
  STRATA_CHECK_EQ(gradients.buffer >= 0, learns && layout.trains());
  STRATA_CHECK_EQ(shared_gradients.buffer >= 0, learns && layout.trains_shared());
  Task& task = call.add(draft, TaskKind::loss);
  Draft::use(task, draft.plan.control.losses, Role::losses, Access::update);
  Draft::use_if_any(task, draft.plan.control.scores, Role::scores, Access::write);
  Draft::use_if_any(task, residual, Role::residual);
  Draft::use_if_any(task, gradients, Role::gradients);
  Draft::use_if_any(task, shared_gradients, Role::shared_gradients);
  Draft::use_if_any(task, cache, Role::cache, Access::update);
  UnitCall::set_work(draft, task, call.share_of(unit.loss_work(learns)));
}

void Loss::run(TaskContext& context, const Task& task, Lane& lane) {
  if (task.step) return run_step(context, task, lane);
  const models::LossUnit& unit = context.model.loss_unit();
  const ConstView x = UnitCall::input(context, task);
  if (context.generation.rows > 0)
    return unit.logits(lane, UnitCall::unit_context(context, task), x,
                       context.view(task, Role::scores, DType::fp32).sub(0, context.model.vocabulary));
  const View gradients = context.view(task, Role::gradients), dx = gradient_of_input(context, task);
  models::Context unit_context = UnitCall::unit_context(context, task);
  if (task.buffer(Role::scores) >= 0)
    unit_context.scores =
        context.view(task, Role::scores, DType::fp32).sub(0, context.model.loss_rows() * unit.score_stride());
  unit.loss(lane, unit_context, x, loss_of(context), dx, gradients);
  count_once(context, lane);
  if (!dx) return;  // a forward-only plan
  if (gradients && task.stretch <= 0 && !task.overlaps_exchange) UnitCall::zero_gaps(context, task, lane, gradients);
  if (task.buffer(Role::partial) < 0 && !task.overlaps_exchange) UnitCall::count_nonfinite(context, task, lane, dx);
}

void TiledLoss::add(Draft& draft) const {
  const bool shared = gathered.unit != which.unit;
  Task& task = draft.add_task(TaskKind::loss, LaneId::compute, which, range, micro_batch);
  task.step = step;
  const auto use_pool = [&](int buffer, const UnitPart& pool, Role role) {
    if (buffer < 0) return;
    const std::size_t bytes = gathered.part < 0 ? 0 : draft.bytes_of(draft.range_of(pool).size());
    Draft::use(task, Slice{buffer, 0, bytes}, role, Access::read);
  };
  const UnitPart kept{gathered.unit, gathered.part, PoolKind::frozen};
  use_pool(parameters, gathered, shared ? Role::shared_parameters : Role::parameters);
  use_pool(frozen, kept, Role::frozen);
  if (!shared) task.frozen_begin = draft.range_of(kept).begin;
  UnitCall::use_control(draft, task);
  Draft::use_if_any(task, workspace, Role::workspace);
  Draft::use_if_any(task, x, Role::x, Access::read);
  if (step == models::LossStep::finish) Draft::use(task, draft.plan.control.losses, Role::losses, Access::update);
  Draft::use_if_any(task, residual, Role::residual, Access::write);
  Draft::use_if_any(task, gradients, shared ? Role::shared_gradients : Role::gradients, Access::write);
  UnitCall::set_work(
      draft, task,
      draft.model.loss_unit().step_work(step, range.size() + (frozen >= 0 ? draft.range_of(kept).size() : 0)));
}

}  // namespace strata::runtime
