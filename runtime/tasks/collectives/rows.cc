#include "runtime/tasks/collectives/rows.h"

#include "device/ops/elementwise.h"

namespace strata::runtime {
namespace {

std::size_t own_elements(const StepPlan& plan, const models::Model& model) {
  return plan.rows * model.hidden;
}

}  // namespace

std::size_t GatherRows::rows_bytes(const Draft& draft, std::size_t matrices) {
  return draft.bytes_of(matrices * own_elements(draft.plan, draft.model));
}

std::size_t GatherRows::whole_bytes(const Draft& draft, std::size_t matrices) {
  return draft.bytes_of(matrices * draft.plan.tokens * draft.model.hidden);
}

void GatherRows::add(Draft& draft) const {
  const auto others = static_cast<std::size_t>(draft.plan.mesh().tensor) - 1;
  Task& task = draft.add_task(TaskKind::gather_rows, LaneId::exchange, unit, micro_batch);
  task.stretch = stretch;
  task.backward = backward;
  task.at_once = matrices;
  const bool of_seam = stretch >= 0;
  Draft::use(task, rows, of_seam ? Role::partial : Role::source, Access::read);
  Draft::use(task, whole, of_seam ? Role::total : Role::target, Access::write);
  const std::size_t sent = others * rows_bytes(draft, matrices);
  const std::uint64_t between = matrices * draft.levels(Peers::tensor).gathered(rows_bytes(draft));
  task.cost.bytes = static_cast<double>(rows_bytes(draft, matrices) + whole_bytes(draft, matrices));
  task.cost.sent_bytes = static_cast<double>(sent);
  task.cost.between_bytes = static_cast<double>(between);
  draft.plan.comm_bytes.all_gather += sent;
  draft.plan.comm_bytes.between_nodes += between;
}

void GatherRows::run(Site& site, const Task& task, device::Lane&) {
  const bool of_seam = task.stretch >= 0;
  const device::View rows = site.view(task, of_seam ? Role::partial : Role::source);
  const device::View whole = site.view(task, of_seam ? Role::total : Role::target);
  comm::Communicator& over = site.over.tensor;
  const std::size_t own = own_elements(site.plan, site.model), all = own * static_cast<std::size_t>(over.size());
  for (std::size_t i = 0; i < task.at_once; ++i) {
    const device::View matrix = whole.sub(i * all, all);
    over.all_gather({own * size_of(rows.dtype), 0, matrix.bytes()}, rows.sub(i * own, own).data, matrix.data);
  }
}

void TakeRows::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::take_rows, LaneId::compute, unit, micro_batch);
  Draft::use(task, whole, Role::source, Access::read);
  Draft::use(task, rows, Role::target, Access::write);
  task.cost.bytes = static_cast<double>(2 * GatherRows::rows_bytes(draft));
}

void TakeRows::run(Site& site, const Task& task, device::Lane& lane) {
  const std::size_t own = own_elements(site.plan, site.model);
  const std::size_t first = own * static_cast<std::size_t>(site.rank.tensor);
  cast(lane, site.view(task, Role::source).sub(first, own), site.view(task, Role::target).sub(0, own));
}

}  // namespace strata::runtime
