#include "runtime/tasks/update.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/step/optimizer.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {

using device::ConstView;
using device::DType;
using device::View;

void Update::add(Draft& draft) const {
  const LaneId lane = draft.tier_of(master.buffer) == Tier::device ? LaneId::compute : LaneId::host_compute;
  Task& task = draft.add_task(TaskKind::update, lane, unit);
  task.begin = elements.begin;
  task.end = elements.end;
  if (draft.plan.cyclic)
    Draft::use(task, draft.plan.control.pending, Role::pending, Access::read);
  else
    Draft::use(task, draft.plan.control.state, Role::state, Access::read);
  for (const GradientSource& source : gradient) Draft::use(task, source.slice, source.role, Access::read);
  Draft::use(task, master, Role::master, Access::update);
  Draft::use(task, moment1, Role::moment1, Access::update);
  if (moment2.buffer >= 0) Draft::use(task, moment2, Role::moment2, Access::update);
  STRATA_CHECK_EQ(parameters.buffer >= 0, !draft.fp32());
  if (parameters.buffer >= 0) Draft::use(task, parameters, Role::parameters, Access::write);
  const std::size_t moments = moment1.bytes + moment2.bytes;
  task.cost.bytes =
      static_cast<double>(2 * device::fp32_bytes(elements.size()) + 2 * draft.bytes_of(elements.size()) + 2 * moments);
}

void Update::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const StepPlan& plan = context.plan;
  const auto unit = static_cast<std::size_t>(task.unit);
  const std::size_t part = plan.parts_of(unit).piece(context.rank).begin;
  const std::size_t begin = part + task.begin, end = part + task.end;
  const device::StepScalars* scalars = plan.cyclic ? context.at<device::StepScalars>(plan.control.pending)
                                                   : &context.at<StepState>(plan.control.state)->scalars;
  // All operands start at `begin`, except a sharer's gradient, which starts at the shared range.
  const View sum = context.view(task, Role::sum, DType::fp32), gradients = context.view(task, Role::gradients);
  const View others = context.view(task, Role::shared_gradients);
  const View master = context.view(task, Role::master, DType::fp32), parameters = context.view(task, Role::parameters);
  std::byte* moment1 = context.view(task, Role::moment1, DType::fp32).data;
  std::byte* moment2 = context.view(task, Role::moment2, DType::fp32).data;
  // A copy of the parameters is written back even if the step is skipped. So a skipped update must write the copy too,
  // or the stored parameters would be lost.
  const bool copied = task.buffer(Role::parameters) != plan.state_buffers[unit].parameters;
  const device::OnSkip on_skip = copied ? device::OnSkip::rewrite_parameter : device::OnSkip::leave_parameter;
  const UnitLayout& layout = context.layout(task);
  const ElementRange shared = also_in_shared_gradients(context, task);
  const auto apply = [&](std::size_t from, std::size_t to, const TensorRange& range) {
    if (from >= to) return;
    const std::size_t at = from - begin, n = to - from;
    ConstView first, second;
    if (sum) {
      first = sum.sub(at, n);
    } else if (from >= shared.begin && from < shared.end) {
      first = others.sub(from - std::max(begin, shared.begin), n);
      second = gradients.sub(at, n);
    } else {
      first = gradients.sub(at, n);
    }
    const std::size_t moments = layout.moment_bytes(begin, from);
    device::update(lane, context.optimizer, scalars,
                   {.first = first,
                    .second = second,
                    .master = master.sub(at, n),
                    .parameter = parameters ? parameters.sub(at, n) : View{},
                    .format = range.moments,
                    .moment1 = moment1 + moments,
                    .moment2 = moment2 ? moment2 + moments : nullptr,
                    .decay = range.decay,
                    .unit = static_cast<std::uint32_t>(task.unit),
                    .begin = from + (range.is_cut() ? context.unit(task).before_shards() : 0)},
                   on_skip);
  };
  for (const TensorRange& range : layout.ranges) {
    const std::size_t from = std::max(begin, range.begin), to = std::min(end, range.end);
    // In the shared range, the gradient is the sum of two gradients.
    apply(from, std::min(to, shared.begin), range);
    apply(std::max(from, shared.begin), std::min(to, shared.end), range);
    apply(std::max(from, shared.end), to, range);
  }
}

}  // namespace strata::runtime
