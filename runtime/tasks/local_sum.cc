#include "runtime/tasks/local_sum.h"

#include "device/ops/elementwise.h"

namespace strata::runtime {
namespace {

using device::View;

Role role_of_gradients(bool shared) {
  return shared ? Role::shared_gradients : Role::gradients;
}

Task& add_task(Draft& draft, TaskKind kind, const UnitPart& which, int micro_batch, const ElementRange& range) {
  Task& task = draft.add_task(kind, LaneId::reduce, which.unit, micro_batch);
  task.part = which.part;
  task.begin = range.begin;
  task.end = range.end;
  task.cost.bytes = static_cast<double>(range.size() * (draft.element + 8));
  return task;
}

View gradients_of(const Site& site, const Task& task) {
  return site.view(task, role_of_gradients(task.shared)).sub(0, task.end - task.begin);
}
View sum_of(const Site& site, const Task& task) {
  return site.view(task, Role::local_sum, device::DType::fp32).sub(0, task.end - task.begin);
}

}  // namespace

void Accumulate::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::accumulate, which, micro_batch, range);
  task.shared = shared;
  task.first = sum.starts;
  Draft::use(task, gradients, role_of_gradients(shared), Access::read);
  Draft::use(task, sum, Role::local_sum);
}

void Accumulate::run(Site& site, const Task& task, device::Lane& lane) {
  if (task.first) return cast(lane, gradients_of(site, task), sum_of(site, task));
  device::add(lane, gradients_of(site, task), sum_of(site, task));
}

void Round::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::round, which, -1, range);
  task.shared = shared;
  task.first = starts;
  Draft::use(task, gradients, role_of_gradients(shared), Access::write);
  Draft::use(task, sum, Role::local_sum, Access::read);
}

void Round::run(Site& site, const Task& task, device::Lane& lane) {
  cast(lane, sum_of(site, task), gradients_of(site, task));
}

}  // namespace strata::runtime
