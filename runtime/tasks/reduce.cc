#include "runtime/tasks/reduce.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/elementwise.h"
#include "device/ops/step/gradient_sum.h"

namespace strata::runtime {
namespace {

using device::DType;
using device::View;

std::size_t up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

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

void ReduceGradient::add(Draft& draft) const {
  const auto ranks = static_cast<std::size_t>(draft.request.ranks);
  const auto& [which, micro_batch, range, shared, gradients] = gradient;
  Task& task = draft.add_task(TaskKind::reduce, LaneId::reduce, which.unit, micro_batch);
  task.part = which.part;
  task.begin = range.begin;
  task.end = range.end;
  task.shared = shared;
  task.first = first;
  // Every rank's pieces of what this rank owns, onto its sum.
  task.cost.bytes = static_cast<double>(range.size() * draft.element + range.size() * 8 / ranks);
  Draft::use(task, gradients, gradient.role(), Access::read);
  if (!draft.single()) {
    // A part may lie in one rank's shard, which then receives it from everyone: it travels bit by bit, so that what
    // is received at once is no more than the part.
    const std::size_t shard = draft.layout(shared ? draft.layout(which.unit).shared->unit : which.unit).shard;
    task.at_once = which.part < 0 ? range.size() : up(range.size(), ranks * kShardAlignment) / ranks;
    const int staging = draft.add_buffer(draft.text_of("staging of", which), Kind::staging, Tier::device,
                                         ranks * std::min(shard, task.at_once) * draft.element, false);
    Draft::use(task, staging, Role::staging, Access::write);
    const Portions portions = portions_of(range, shard, draft.request.ranks);
    draft.plan.comm_bytes.all_to_all += (range.size() - portions.of_rank0) * draft.element;
    task.cost.sent_bytes = static_cast<double>((range.size() - portions.least) * draft.element);
  }
  Draft::use(task, sum, shared ? Role::shared_sum : Role::sum);
}

void ReduceGradient::run(Site& site, const Task& task, device::Lane& lane) {
  const StepPlan& plan = site.plan;
  const UnitLayout& holder = holder_of(site, task);
  const std::size_t shard = holder.shard, element = size_of(plan.dtype);
  const std::byte* gradients = site.view(task, CallGradient::role_of(task.shared)).data;
  auto& pieces = site.received[static_cast<std::size_t>(&task - plan.tasks.data())];
  if (plan.ranks == 1) {
    pieces.assign(1, gradients);
    const std::size_t begin = task.shared ? site.layout(task).shared->elements.begin : 0;
    const View all = site.view(task, task.shared ? Role::shared_sum : Role::sum, DType::fp32);
    return gradient_sum(lane, pieces, plan.dtype, all.sub(task.begin - begin, task.end - task.begin), task.first);
  }
  // The first element of the sum: of the rank's piece of what is shared; of its shard, or, if the optimizer is whole,
  // of everything.
  std::size_t origin = plan.sharded_optimizer() ? shard * static_cast<std::size_t>(site.rank) : 0;
  if (task.shared) origin = owned(site, site.layout(task).shared->elements, holder).begin;
  const View sum = site.view(task, task.shared ? Role::shared_sum : Role::sum, DType::fp32);
  const View staging = site.view(task, Role::staging);
  pieces.resize(static_cast<std::size_t>(plan.ranks));
  for (std::size_t at = task.begin; at < task.end; at += task.at_once) {
    const std::size_t to = std::min(task.end, at + task.at_once);
    const auto own = owned(site, {at, to}, holder);
    STRATA_CHECK_LE(pieces.size() * own.bytes(), staging.size);  // shared memory would not notice
    site.reduce.all_to_all({shard * element, at * element, to * element}, gradients + (at - task.begin) * element,
                           staging.data, pieces.data());
    if (own.bytes() > 0) gradient_sum(lane, pieces, plan.dtype, sum.sub(own.begin - origin, own.bytes()), task.first);
    site.reduce.release();
  }
}

void Combine::add(Draft& draft) const {
  const ElementRange& elements = draft.layout(sharer).shared->elements;
  Task& task = draft.add_task(TaskKind::combine, LaneId::reduce, holder);
  task.begin = elements.begin;
  task.end = elements.end;
  Draft::use(task, shared_sum, Role::shared_sum, Access::read);
  Draft::use(task, sum, Role::sum, Access::update);
  // Who owns most of it reads both sums and writes one.
  const Portions portions = portions_of(elements, draft.layout(holder).shard, draft.request.ranks);
  task.cost.bytes = static_cast<double>(portions.most * 12);
}

void Combine::run(Site& site, const Task& task, device::Lane& lane) {
  const UnitLayout& layout = site.layout(task);
  const auto own = owned(site, {task.begin, task.end}, layout);
  if (own.bytes() == 0) return;
  device::add(
      lane, site.view(task, Role::shared_sum, DType::fp32).sub(0, own.bytes()),
      own_part_of_sum(site, task).sub(own.begin - layout.shard * static_cast<std::size_t>(site.rank), own.bytes()));
}

}  // namespace strata::runtime
