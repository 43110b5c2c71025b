#include "runtime/tasks/unpack.h"

#include "base/error.h"
#include "device/ops/elementwise.h"

namespace strata::runtime {

void Unpack::add(Draft& draft) const {
  const ElementRange range = draft.range_of(which);
  Task& task = draft.add_task(TaskKind::unpack, LaneId::compute, which, range);
  const std::size_t from = draft.bytes_of(which.pool, range.size()), to = draft.bytes_of(range.size());
  STRATA_CHECK_EQ(quantised.bytes, from);
  Draft::use(task, quantised, Role::quantised, Access::read);
  Draft::use(task, Slice{unpacked, 0, to}, Role::unpacked, Access::write);
  task.cost.bytes = static_cast<double>(from + to);
}

void Unpack::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const std::byte* packed = context.view(task, Role::quantised, device::DType::fp32).data;
  device::unpack(lane, context.plan.stored_in(task.pool), packed, context.view(task, Role::unpacked));
}

}  // namespace strata::runtime
