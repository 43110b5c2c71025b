#include "runtime/tasks/gather.h"

namespace strata::runtime {
namespace {

// Of the task's range, elements of `size` bytes. Counted is what rank 0 sends; who sends most bounds the time.
void count(Draft& draft, Task& task, std::size_t size) {
  const std::size_t others = static_cast<std::size_t>(draft.request.ranks - 1);
  const auto [of_rank0, least, most] =
      portions_of({task.begin, task.end}, draft.layout(task.unit).shard, draft.request.ranks);
  draft.plan.comm_bytes.all_gather += of_rank0 * size * others;
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
  const std::size_t element = size_of(site.plan.dtype), shard = site.layout(task).shard * element;
  std::byte* whole = site.view(task, Role::parameters).data;
  const device::View own = site.view(task, Role::shard);
  site.gather.all_gather({shard, task.begin * element, task.end * element},
                         own ? own.data : whole + shard * static_cast<std::size_t>(site.rank), whole);
}

void GatherSums::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::gather_sums, LaneId::reduce, unit);
  task.end = draft.layout(unit).padded;
  Draft::use(task, sum, Role::sum, Access::update);
  count(draft, task, sizeof(float));
}

void GatherSums::run(Site& site, const Task& task, device::Lane&) {
  const UnitLayout& layout = site.layout(task);
  const std::size_t shard = layout.shard * sizeof(float);
  std::byte* sums = site.view(task, Role::sum, device::DType::fp32).data;
  site.reduce.all_gather({shard, 0, layout.padded * sizeof(float)}, sums + shard * static_cast<std::size_t>(site.rank),
                         sums);
}

}  // namespace strata::runtime
