#include "runtime/tasks/collectives/gather.h"

#include "base/index.h"

namespace strata::runtime {
namespace {

// The step's totals count the bytes that rank 0 sends. The cost counts the bytes of the rank that sends the most,
// because that rank bounds the time.
void count(Draft& draft, Task& task, const Cut& cut, device::StorageFormat format) {
  const auto others = static_cast<std::size_t>(cut.pieces - 1);
  const auto [first, least, most] = portions_of({task.begin, task.end}, cut);
  const comm::Levels& levels = draft.levels(*traits_of(task.kind).peers);
  draft.plan.comm_bytes.all_gather += stored_bytes(format, first) * others;
  draft.plan.comm_bytes.between_nodes += others == 0 ? 0 : levels.gathered(stored_bytes(format, first));
  task.cost.sent_bytes = static_cast<double>(stored_bytes(format, most) * others);
  task.cost.between_bytes = others == 0 ? 0.0 : static_cast<double>(levels.gathered(stored_bytes(format, most)));
}

// All-gathers in place: `data` holds elements `whole` of a flat buffer, and the rank has filled elements `own`.
void gather_in_place(comm::Communicator& communicator, const ElementRange& whole, const ElementRange& own,
                     std::byte* data, device::StorageFormat format) {
  communicator.all_gather({stored_bytes(format, own.size()), 0, stored_bytes(format, whole.size())},
                          data + stored_bytes(format, own.begin - whole.begin), data);
}

}  // namespace

void Gather::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::gather, LaneId::gather, which, draft.range_of(which));
  Draft::use(task, shard, Role::shard, Access::read);
  Draft::use(task, parameters, Role::parameters, Access::write);
  count(draft, task, draft.plan.parameters_of(index(which.unit), which.pool), draft.plan.stored_in(which.pool));
}

void Gather::run(TaskContext& context, const Task& task, device::Lane&) {
  const Cut cut = context.plan.parameters_of(index(task.unit), task.pool);
  context.communicators.parameters.all_gather(range_of(cut, {task.begin, task.end}, context.plan.stored_in(task.pool)),
                                              context.view(task, Role::shard).data,
                                              context.view(task, Role::parameters).data);
}

void GatherUpdated::add(Draft& draft) const {
  const std::size_t held = draft.plan.parameters_of(index(unit)).size();
  Task& task = draft.add_task(TaskKind::gather_updated, LaneId::gather, unit);
  task.end = held;
  Draft::use(task, parameters, Role::parameters, Access::update);
  count(draft, task, {static_cast<int>(held / draft.plan.parts_of(index(unit)).size()), 1, held}, draft.computed);
}

void GatherUpdated::run(TaskContext& context, const Task& task, device::Lane&) {
  const StepPlan& plan = context.plan;
  gather_in_place(context.communicators.updates, plan.parameters_of(index(task.unit)).piece(context.rank),
                  plan.parts_of(index(task.unit)).piece(context.rank), context.view(task, Role::parameters).data,
                  format_of(plan.dtype));
}

void GatherSums::add(Draft& draft) const {
  const Cut part = draft.plan.sums_of(index(unit));
  Task& task = draft.add_task(TaskKind::gather_sums, LaneId::reduce, unit);
  task.end = part.size();
  Draft::use(task, sum, Role::sum, Access::update);
  count(draft, task, {part.copies, 1, part.size()}, device::StorageFormat::fp32);
}

void GatherSums::run(TaskContext& context, const Task& task, device::Lane&) {
  gather_in_place(context.communicators.sums, context.plan.sums_of(index(task.unit)).piece(context.rank),
                  context.layout(task).shards.piece(context.rank),
                  context.view(task, Role::sum, device::DType::fp32).data, device::StorageFormat::fp32);
}

}  // namespace strata::runtime
