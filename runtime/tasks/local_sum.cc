#include "runtime/tasks/local_sum.h"

#include "device/ops/elementwise.h"

namespace strata::runtime {
namespace {

using device::View;

Task& add_task(Draft& draft, TaskKind kind, const CallGradient& gradient, bool first) {
  Task& task = draft.add_task(kind, LaneId::reduce, gradient.which.unit);
  task.part = gradient.which.part;
  task.begin = gradient.range.begin;
  task.end = gradient.range.end;
  task.shared = gradient.shared;
  task.first = first;
  task.cost.bytes =
      static_cast<double>(draft.bytes_of(gradient.range.size()) + 2 * device::fp32_bytes(gradient.range.size()));
  return task;
}

View gradients_of(const Site& site, const Task& task) {
  return site.view(task, CallGradient::role_of(task.shared)).sub(0, task.end - task.begin);
}
View sum_of(const Site& site, const Task& task) {
  return site.view(task, Role::local_sum, device::DType::fp32).sub(0, task.end - task.begin);
}

}  // namespace

void Accumulate::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::accumulate, gradient, sum.starts);
  task.micro_batch = gradient.micro_batch;
  Draft::use(task, gradient.buffer, gradient.role(), Access::read);
  Draft::use(task, sum, Role::local_sum);
}

void Accumulate::run(Site& site, const Task& task, device::Lane& lane) {
  if (task.first) return cast(lane, gradients_of(site, task), sum_of(site, task));
  device::add(lane, gradients_of(site, task), sum_of(site, task));
}

void Round::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::round, gradient, sum.starts);
  Draft::use(task, gradient.buffer, gradient.role(), Access::write);
  Draft::use(task, sum.buffer, Role::local_sum, Access::read);
}

void Round::run(Site& site, const Task& task, device::Lane& lane) {
  cast(lane, sum_of(site, task), gradients_of(site, task));
}

}  // namespace strata::runtime
