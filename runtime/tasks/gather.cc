#include "runtime/tasks/gather.h"

namespace strata::runtime {
namespace {

// Of the task's range, elements of `size` bytes. Counted is what rank 0 sends; who sends most bounds the time.
void count(Draft& draft, Task& task, std::size_t size) {
  const Cut& cut = draft.layout(task.unit).shards;
  const auto others = static_cast<std::size_t>(cut.pieces - 1);
  const auto [first, least, most] = portions_of({task.begin, task.end}, cut);
  draft.plan.comm_bytes.all_gather += first * size * others;
  task.cost.sent_bytes = static_cast<double>(most * size * others);
}

}  // namespace

void Gather::add(Draft& draft) const {
  const ElementRange range = draft.range_of(which);
  const bool in_place = shard.buffer < 0;
  Task& task = draft.add_task(TaskKind::gather, LaneId::gather, which.unit);
  task.part = which.part;
  task.begin = range.begin;
  task.end = range.end;
  if (!in_place) Draft::use(task, shard, Role::shard, Access::read);
  Draft::use(task, parameters, Role::parameters, in_place ? Access::update : Access::write);
  count(draft, task, draft.element);
}

void Gather::run(Site& site, const Task& task, device::Lane&) {
  const std::size_t element = size_of(site.plan.dtype);
  const Cut& cut = site.layout(task).shards;
  std::byte* whole = site.view(task, Role::parameters).data;
  const device::View own = site.view(task, Role::shard);
  site.gather.all_gather(range_of(cut, {task.begin, task.end}, element),
                         own ? own.data : whole + cut.piece(site.rank).begin * element, whole);
}

void GatherSums::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::gather_sums, LaneId::reduce, unit);
  task.end = draft.layout(unit).padded();
  Draft::use(task, sum, Role::sum, Access::update);
  count(draft, task, sizeof(float));
}

void GatherSums::run(Site& site, const Task& task, device::Lane&) {
  const Cut& cut = site.layout(task).shards;
  std::byte* sums = site.view(task, Role::sum, device::DType::fp32).data;
  site.reduce.all_gather(range_of(cut, {0, cut.elements}, sizeof(float)),
                         sums + cut.piece(site.rank).begin * sizeof(float), sums);
}

}  // namespace strata::runtime
