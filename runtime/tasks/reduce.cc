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

// The first element in the task's sum buffer: the start of the rank's piece; for shared elements, of those it owns.
std::size_t start_of_sum(const Site& site, const Task& task) {
  const UnitLayout& layout = site.layout(task);
  if (task.shared) return owned(site, layout.shared->elements, holder_of(site, task)).begin;
  return site.plan.sums_of(static_cast<std::size_t>(task.unit)).piece(site.rank).begin;
}

// The runs of micro-batches to which the task adds these elements. The run's buffer begins with the rank's own
// elements.
device::GradientRuns runs_of(const Site& site, const Task& task, const ElementRange& elements) {
  const auto length = static_cast<std::size_t>(site.plan.reduce_group);
  const auto g = static_cast<std::uint64_t>(task.micro_batch);
  const std::size_t before = site.plan.layout.mesh.micro_batch(0, g, {}) % length;
  if (task.buffer(Role::run_sum) < 0) return {length, before};
  const UnitLayout& holder = holder_of(site, task);
  const ElementRange own =
      task.shared ? owned(site, site.layout(task).shared->elements, holder) : holder.shards.piece(site.rank);
  return {length, before, site.view(task, Role::run_sum, DType::fp32).sub(elements.begin - own.begin, elements.size())};
}

}  // namespace

bool sums_in_tiles(const StepPlan& plan, int unit) {
  return plan.mesh().data() == 1 && plan.reduce_group == 1 && plan.placement.gradients.tier == Tier::host &&
         !plan.layout.units[static_cast<std::size_t>(unit)].has_frozen();
}

bool holds_tile(const StepPlan& plan, const Task& task) {
  return task.part >= 0 && sums_in_tiles(plan, task.unit);
}

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

ElementRange owned(const Site& site, const ElementRange& elements, const UnitLayout& holder) {
  return holder.shards.piece_of(elements, site.rank);
}

View own_part_of_sum(const Site& site, const Task& task) {
  const UnitLayout& holder = holder_of(site, task);
  if (task.shared)
    return site.view(task, Role::shared_sum, DType::fp32)
        .sub(0, owned(site, site.layout(task).shared->elements, holder).size());
  const View sum = site.view(task, Role::sum, DType::fp32);
  const ElementRange own = holder.shards.piece(site.rank);
  return sum.sub(own.begin - start_of_sum(site, task), own.size());
}

void ReduceGradient::add(Draft& draft) const {
  const auto ranks = static_cast<std::size_t>(draft.request.mesh.data());
  const auto& [which, micro_batch, range, shared, gradients] = gradient;
  Task& task = draft.add_task(TaskKind::reduce, LaneId::reduce, which.unit, micro_batch);
  task.part = which.part;
  task.begin = range.begin;
  task.end = range.end;
  task.shared = shared;
  task.first = first;
  // Bytes of adding every rank's pieces of this rank's elements to its sum.
  task.cost.bytes = static_cast<double>(draft.bytes_of(range.size()) + 2 * device::fp32_bytes(range.size()) / ranks);
  Draft::use(task, gradients, gradient.role(), Access::read);
  if (!draft.single()) {
    // A part may lie in a single rank's shard, and that rank receives it from all ranks. The exchange goes in steps, so
    // that no rank receives more than the size of the part at once.
    const Cut& cut = draft.layout(shared ? draft.layout(which.unit).shared->unit : which.unit).shards;
    task.at_once = which.part < 0 ? range.size() : up(range.size(), ranks * kShardAlignment) / ranks;
    const int staging = draft.add_buffer(draft.text_of("staging of", which), Kind::staging, Tier::device,
                                         ranks * draft.bytes_of(std::min(cut.size(), task.at_once)), false);
    Draft::use(task, staging, Role::staging, Access::write);
    const Portions portions = portions_of(range, cut);
    draft.plan.comm_bytes.all_to_all += draft.bytes_of(range.size() - portions.first);
    task.cost.sent_bytes = static_cast<double>(draft.bytes_of(range.size() - portions.least));
    const std::uint64_t between = draft.levels(Peers::gradients).exchanged(range_of(cut, range, draft.computed));
    draft.plan.comm_bytes.between_nodes += between;
    task.cost.between_bytes = static_cast<double>(between);
  }
  // The use covers a tile's sum alone: its buffer is longer if the sum is not a whole number of pages.
  const Slice held{sum.buffer, 0, holds_tile(draft.plan, task) ? device::fp32_bytes(range.size()) : 0};
  Draft::use(task, held, shared ? Role::shared_sum : Role::sum, sum.access());
  Draft::use_if_any(task, run_sum, Role::run_sum);
  if (run_sum.buffer >= 0) task.cost.bytes += static_cast<double>(range.size() * 8 / ranks);
}

void ReduceGradient::run(Site& site, const Task& task, device::Lane& lane) {
  const StepPlan& plan = site.plan;
  const UnitLayout& holder = holder_of(site, task);
  const device::StorageFormat format = format_of(plan.dtype);
  const std::byte* gradients = site.view(task, CallGradient::role_of(task.shared)).data;
  auto& pieces = site.received[static_cast<std::size_t>(&task - plan.tasks.data())];
  const std::size_t start = holds_tile(plan, task) ? task.begin : start_of_sum(site, task);
  const View sum = site.view(task, task.shared ? Role::shared_sum : Role::sum, DType::fp32);
  if (holder.shards.pieces == 1) {
    pieces.assign(1, gradients);
    return gradient_sum(lane, pieces, plan.dtype, sum.sub(task.begin - start, task.end - task.begin), task.first,
                        runs_of(site, task, {task.begin, task.end}));
  }
  const View staging = site.view(task, Role::staging);
  pieces.resize(static_cast<std::size_t>(holder.shards.pieces));
  for (std::size_t at = task.begin; at < task.end; at += task.at_once) {
    const std::size_t to = std::min(task.end, at + task.at_once);
    const ElementRange own = owned(site, {at, to}, holder);
    STRATA_CHECK_LE(pieces.size() * own.size(), staging.size);  // in shared memory an overrun would go unnoticed
    site.over.gradients.all_to_all(range_of(holder.shards, {at, to}, format),
                                   gradients + stored_bytes(format, at - task.begin), staging.data, pieces.data());
    if (own.size() > 0)
      gradient_sum(lane, pieces, plan.dtype, sum.sub(own.begin - start, own.size()), task.first,
                   runs_of(site, task, own));
    site.over.gradients.release();
  }
}

void Combine::add(Draft& draft) const {
  const ElementRange& elements = range.size() ? range : draft.layout(sharer).shared->elements;
  Task& task = draft.add_task(TaskKind::combine, LaneId::reduce, holder);
  task.begin = elements.begin;
  task.end = elements.end;
  if (range.size()) task.part = chunk;
  const std::size_t bytes = device::fp32_bytes(range.size());
  Draft::use(task, Slice{shared_sum, 0, bytes}, Role::shared_sum, Access::read);
  Draft::use(task, Slice{sum, 0, bytes}, Role::sum, Access::update);
  // The rank that owns the most elements reads both sums and writes one.
  const Portions portions = portions_of(elements, draft.layout(holder).shards);
  task.cost.bytes = static_cast<double>(3 * device::fp32_bytes(portions.most));
}

void Combine::run(Site& site, const Task& task, device::Lane& lane) {
  if (holds_tile(site.plan, task))
    return device::add(lane, site.view(task, Role::shared_sum, DType::fp32), site.view(task, Role::sum, DType::fp32));
  const UnitLayout& layout = site.layout(task);
  const ElementRange own = owned(site, {task.begin, task.end}, layout);
  if (own.size() == 0) return;
  device::add(lane, site.view(task, Role::shared_sum, DType::fp32).sub(0, own.size()),
              own_part_of_sum(site, task).sub(own.begin - layout.shards.piece(site.rank).begin, own.size()));
}

}  // namespace strata::runtime
