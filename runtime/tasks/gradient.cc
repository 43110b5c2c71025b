#include "runtime/tasks/gradient.h"

#include "base/error.h"

namespace strata::runtime {

using device::DType;
using device::View;

ElementRange also_in_shared_gradients(const Site& site, const Task& task) {
  if (task.buffer(Role::shared_gradients) < 0) return {0, 0};
  const UnitLayout& layout = site.layout(task);
  STRATA_CHECK_EQ(layout.sharers.size(), 1u);
  return site.layout(layout.sharers[0]).shared->elements;
}

const UnitLayout& holder_of(const Site& site, const Task& task) {
  const UnitLayout& layout = site.layout(task);
  return task.shared ? site.layout(layout.shared->unit) : layout;
}

comm::ShardedRange::Owned owned(const Site& site, const ElementRange& elements, const UnitLayout& holder) {
  return comm::ShardedRange{holder.shard, elements.begin, elements.end}.owned(site.rank);
}

View own_part_of_sum(const Site& site, const Task& task) {
  const UnitLayout& holder = holder_of(site, task);
  if (task.shared)
    return site.view(task, Role::shared_sum, DType::fp32)
        .sub(0, owned(site, site.layout(task).shared->elements, holder).bytes());
  const View sum = site.view(task, Role::sum, DType::fp32);
  const std::size_t shard = holder.shard;
  return site.plan.sharded_optimizer() ? sum.sub(0, shard)
                                       : sum.sub(shard * static_cast<std::size_t>(site.rank), shard);
}

}  // namespace strata::runtime
