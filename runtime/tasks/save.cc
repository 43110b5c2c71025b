#include "runtime/tasks/save.h"

namespace strata::runtime {

void Save::add(Draft& draft) const {
  const Home& home = draft.home(unit);
  Task& task = draft.add_task(TaskKind::save, LaneId::checkpoint, unit);
  task.when = When::checkpoint;
  Draft::use(task, staging, Role::staging);
  Draft::use_if_any(task, draft.fp32() ? home.parameters : home.master, Role::master, Access::read);
  Draft::use_if_any(task, home.frozen, Role::frozen, Access::read);
  Draft::use_if_any(task, home.quantised, Role::quantised, Access::read);
  Draft::use_if_any(task, home.moment1, Role::moment1, Access::read);
  Draft::use_if_any(task, home.moment2, Role::moment2, Access::read);
}

void Save::run(Site& site, const Task& task, device::Lane& lane) {
  site.saver->save(lane, static_cast<std::size_t>(task.unit));
}

void Publish::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::publish, LaneId::checkpoint, -1);
  task.when = When::checkpoint;
  Draft::use(task, staging, Role::staging, Access::update);
}

void Publish::run(Site& site, const Task&, device::Lane& lane) {
  site.saver->publish(lane);
}

}  // namespace strata::runtime
