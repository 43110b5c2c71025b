#include "runtime/tasks/collectives/reduce.h"

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

// The first element in the task's sum buffer: the start of the rank's piece or, for shared elements, of those that it
// owns.
std::size_t start_of_sum(const TaskContext& context, const Task& task) {
  const UnitLayout& layout = context.layout(task);
  if (task.shared) return owned(context, layout.shared->elements, holder_of(context, task)).begin;
  return context.plan.sums_of(static_cast<std::size_t>(task.unit)).piece(context.rank).begin;
}

// A holder's flat buffer, cut into one piece per rank of a node.
Cut node_pieces(const StepPlan& plan, const UnitLayout& holder) {
  return holder.shards.in_pieces(plan.reduce_group);
}

// The exchange among Peers::gradients: elements `range` of a buffer that is cut among these ranks. The buffer starts at
// element `origin` of the holder's flat buffer, and is all of it or the rank's piece within its node.
struct GradientExchange {
  Cut cut;
  std::size_t origin;
  ElementRange range;

  GradientExchange(const StepPlan& plan, const UnitLayout& holder, const ElementRange& elements,
                   const Coordinates& rank)
      : cut(holder.shards), origin(0), range(elements) {
    if (!plan.sums_in_nodes()) return;
    const Cut node = node_pieces(plan, holder);
    cut = {holder.shards.pieces / node.pieces, 1, node.size()};
    origin = node.piece(rank).begin;
    const ElementRange own = node.piece_of(elements, rank);
    range = own.size() > 0 ? ElementRange{own.begin - origin, own.end - origin} : ElementRange{0, 0};
  }
};

// The elements of a gradient that are exchanged in one step. A part may lie in a single rank's piece, and that rank
// receives it from all ranks. So the exchange goes in steps, and in each step no rank receives more than the size of
// the part.
std::size_t at_once(const CallGradient& gradient, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return gradient.which.part < 0 ? gradient.range.size() : up(gradient.range.size(), n * kShardAlignment) / n;
}

// The runs of micro-batches that the task adds these elements to. The run's buffer begins with the rank's own elements.
device::GradientRuns runs_of(const TaskContext& context, const Task& task, const ElementRange& elements) {
  const auto length = static_cast<std::size_t>(context.plan.reduce_group);
  const auto g = static_cast<std::uint64_t>(task.micro_batch);
  const std::size_t before = context.plan.layout.mesh.micro_batch(0, g, {}) % length;
  if (task.buffer(Role::run_sum) < 0) return {length, before};
  const UnitLayout& holder = holder_of(context, task);
  const ElementRange own =
      task.shared ? owned(context, context.layout(task).shared->elements, holder) : holder.shards.piece(context.rank);
  return {length, before,
          context.view(task, Role::run_sum, DType::fp32).sub(elements.begin - own.begin, elements.size())};
}

}  // namespace

bool sums_in_tiles(const StepPlan& plan, int unit) {
  return plan.mesh().data() == 1 && plan.reduce_group == 1 && plan.placement.gradients.tier == Tier::host &&
         !plan.layout.units[static_cast<std::size_t>(unit)].has_frozen();
}

bool holds_tile(const StepPlan& plan, const Task& task) {
  return task.part >= 0 && sums_in_tiles(plan, task.unit);
}

ElementRange also_in_shared_gradients(const TaskContext& context, const Task& task) {
  if (task.buffer(Role::shared_gradients) < 0) return {0, 0};
  const UnitLayout& layout = context.layout(task);
  STRATA_CHECK_EQ(layout.sharers.size(), 1u);
  return context.layout(layout.sharers[0]).shared->elements;
}

const UnitLayout& holder_of(const TaskContext& context, const Task& task) {
  const UnitLayout& layout = context.layout(task);
  return task.shared ? context.layout(layout.shared->unit) : layout;
}

ElementRange owned(const TaskContext& context, const ElementRange& elements, const UnitLayout& holder) {
  return holder.shards.piece_of(elements, context.rank);
}

View own_part_of_sum(const TaskContext& context, const Task& task) {
  const UnitLayout& holder = holder_of(context, task);
  if (task.shared)
    return context.view(task, Role::shared_sum, DType::fp32)
        .sub(0, owned(context, context.layout(task).shared->elements, holder).size());
  const View sum = context.view(task, Role::sum, DType::fp32);
  const ElementRange own = holder.shards.piece(context.rank);
  return sum.sub(own.begin - start_of_sum(context, task), own.size());
}

int NodeSum::add(Draft& draft) const {
  const auto& [which, micro_batch, range, shared, gradients] = gradient;
  Task& task = draft.add_task(TaskKind::node_sum, LaneId::reduce, which, range, micro_batch);
  task.shared = shared;
  const Cut cut = node_pieces(draft.plan, draft.layout(shared ? draft.layout(which.unit).shared->unit : which.unit));
  task.at_once = at_once(gradient, cut.pieces);
  const std::size_t received = std::min(cut.size(), task.at_once);
  Draft::use(task, gradients, gradient.role(), Access::read);
  Draft::use(task,
             draft.add_buffer(draft.text_of("staging of", which), Kind::staging, Tier::device,
                              static_cast<std::size_t>(cut.pieces) * draft.bytes_of(received), false),
             Role::staging, Access::write);
  if (!draft.fp32())
    Draft::use(task,
               draft.add_buffer(draft.text_of("unrounded node sum of", which), Kind::staging, Tier::device,
                                device::fp32_bytes(received), false),
               Role::workspace, Access::write);
  const Portions portions = portions_of(range, cut);
  const int sum = draft.add_buffer(draft.text_of("node sum of", which), Kind::gradients, Tier::device,
                                   draft.bytes_of(portions.most), false);
  Draft::use(task, sum, Role::node_sum, Access::write);
  task.cost.bytes = static_cast<double>(draft.bytes_of(range.size()) + draft.bytes_of(portions.most));
  task.cost.sent_bytes = static_cast<double>(draft.bytes_of(range.size() - portions.least));
  draft.plan.comm_bytes.all_to_all += draft.bytes_of(range.size() - portions.first);
  return sum;
}

void NodeSum::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const StepPlan& plan = context.plan;
  const Cut cut = node_pieces(plan, holder_of(context, task));
  const device::StorageFormat format = format_of(plan.dtype);
  const std::byte* gradients = context.view(task, CallGradient::role_of(task.shared)).data;
  const View staging = context.view(task, Role::staging), out = context.view(task, Role::node_sum);
  const std::size_t start = cut.piece_of({task.begin, task.end}, context.rank).begin;
  auto& pieces = context.received[static_cast<std::size_t>(&task - plan.tasks.data())];
  pieces.resize(static_cast<std::size_t>(cut.pieces));
  for (std::size_t at = task.begin; at < task.end; at += task.at_once) {
    const std::size_t to = std::min(task.end, at + task.at_once);
    const ElementRange own = cut.piece_of({at, to}, context.rank);
    STRATA_CHECK_LE(pieces.size() * own.size(), staging.size);
    context.communicators.node.all_to_all(range_of(cut, {at, to}, format),
                                          gradients + stored_bytes(format, at - task.begin), staging.data,
                                          pieces.data());
    if (own.size() > 0) {
      const View rounded = out.sub(own.begin - start, own.size());
      const View sum =
          plan.dtype == DType::fp32 ? rounded : context.view(task, Role::workspace, DType::fp32).sub(0, own.size());
      gradient_sum(lane, pieces, plan.dtype, sum, true);
      if (plan.dtype != DType::fp32) cast(lane, sum, rounded);
    }
    context.communicators.node.release();
  }
}

void ReduceGradient::add(Draft& draft) const {
  const auto& [which, micro_batch, range, shared, gradients] = gradient;
  const bool after_nodes = draft.plan.sums_in_nodes();
  const UnitLayout& holder = draft.layout(shared ? draft.layout(which.unit).shared->unit : which.unit);
  const GradientExchange exchange(draft.plan, holder, range, draft.plan.mesh().at(0));
  const auto ranks = static_cast<std::size_t>(exchange.cut.pieces);
  Task& task = draft.add_task(TaskKind::reduce, LaneId::reduce, which, range, micro_batch);
  task.shared = shared;
  task.first = first;
  // Bytes of adding every rank's pieces of this rank's elements to its sum.
  const std::size_t elements = range.size() * ranks / static_cast<std::size_t>(draft.plan.mesh().data());
  task.cost.bytes = static_cast<double>(draft.bytes_of(elements) + 2 * device::fp32_bytes(elements) / ranks);
  Draft::use(task, gradients, after_nodes ? Role::node_sum : gradient.role(), Access::read);
  if (!draft.single()) {
    task.at_once = at_once(gradient, exchange.cut.pieces);
    const int staging = draft.add_buffer(draft.text_of("staging of", which), Kind::staging, Tier::device,
                                         ranks * draft.bytes_of(std::min(exchange.cut.size(), task.at_once)), false);
    Draft::use(task, staging, Role::staging, Access::write);
    const Portions portions = portions_of(range, holder.shards);
    const std::size_t most =
        after_nodes ? portions_of(range, node_pieces(draft.plan, holder)).most : exchange.range.size();
    draft.plan.comm_bytes.all_to_all += draft.bytes_of(exchange.range.size() - portions.first);
    task.cost.sent_bytes = static_cast<double>(draft.bytes_of(most - portions.least));
    const std::uint64_t between =
        draft.levels(Peers::gradients).exchanged(range_of(exchange.cut, exchange.range, draft.computed));
    draft.plan.comm_bytes.between_nodes += between;
    task.cost.between_bytes = static_cast<double>(between);
  }
  // The use covers only a tile's sum, because its buffer is longer if the sum is not a whole number of pages.
  const Slice held{sum.buffer, 0, holds_tile(draft.plan, task) ? device::fp32_bytes(range.size()) : 0};
  Draft::use(task, held, shared ? Role::shared_sum : Role::sum, sum.access());
  Draft::use_if_any(task, run_sum, Role::run_sum);
  if (run_sum.buffer >= 0) task.cost.bytes += static_cast<double>(range.size() * 8 / ranks);
}

void ReduceGradient::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const StepPlan& plan = context.plan;
  const UnitLayout& holder = holder_of(context, task);
  const device::StorageFormat format = format_of(plan.dtype);
  const bool after_nodes = plan.sums_in_nodes();
  const std::byte* gradients =
      context.view(task, after_nodes ? Role::node_sum : CallGradient::role_of(task.shared)).data;
  auto& pieces = context.received[static_cast<std::size_t>(&task - plan.tasks.data())];
  const std::size_t start = holds_tile(plan, task) ? task.begin : start_of_sum(context, task);
  const View sum = context.view(task, task.shared ? Role::shared_sum : Role::sum, DType::fp32);
  if (holder.shards.pieces == 1) {
    pieces.assign(1, gradients);
    return gradient_sum(lane, pieces, plan.dtype, sum.sub(task.begin - start, task.end - task.begin), task.first,
                        runs_of(context, task, {task.begin, task.end}));
  }
  const View staging = context.view(task, Role::staging);
  const GradientExchange exchange(plan, holder, {task.begin, task.end}, context.rank);
  pieces.resize(static_cast<std::size_t>(exchange.cut.pieces));
  for (std::size_t at = exchange.range.begin; at < exchange.range.end; at += task.at_once) {
    const std::size_t to = std::min(exchange.range.end, at + task.at_once);
    const ElementRange own = owned(context, {at + exchange.origin, to + exchange.origin}, holder);
    STRATA_CHECK_LE(pieces.size() * own.size(), staging.size);  // in shared memory an overrun would go unnoticed
    context.communicators.gradients.all_to_all(range_of(exchange.cut, {at, to}, format),
                                               gradients + stored_bytes(format, at - exchange.range.begin),
                                               staging.data, pieces.data());
    if (own.size() > 0)
      gradient_sum(lane, pieces, plan.dtype, sum.sub(own.begin - start, own.size()), task.first,
                   after_nodes ? device::GradientRuns{} : runs_of(context, task, own));
    context.communicators.gradients.release();
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

void Combine::run(TaskContext& context, const Task& task, device::Lane& lane) {
  if (holds_tile(context.plan, task))
    return device::add(lane, context.view(task, Role::shared_sum, DType::fp32),
                       context.view(task, Role::sum, DType::fp32));
  const UnitLayout& layout = context.layout(task);
  const ElementRange own = owned(context, {task.begin, task.end}, layout);
  if (own.size() == 0) return;
  device::add(lane, context.view(task, Role::shared_sum, DType::fp32).sub(0, own.size()),
              own_part_of_sum(context, task).sub(own.begin - layout.shards.piece(context.rank).begin, own.size()));
}

namespace {

using device::View;

Task& add_task(Draft& draft, TaskKind kind, const CallGradient& gradient, bool first) {
  Task& task = draft.add_task(kind, LaneId::reduce, gradient.which, gradient.range);
  task.shared = gradient.shared;
  task.first = first;
  task.cost.bytes =
      static_cast<double>(draft.bytes_of(gradient.range.size()) + 2 * device::fp32_bytes(gradient.range.size()));
  return task;
}

View gradients_of(const TaskContext& context, const Task& task) {
  return context.view(task, CallGradient::role_of(task.shared)).sub(0, task.end - task.begin);
}
View sum_of(const TaskContext& context, const Task& task) {
  return context.view(task, Role::local_sum, device::DType::fp32).sub(0, task.end - task.begin);
}

}  // namespace

void Accumulate::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::accumulate, gradient, sum.starts);
  task.micro_batch = gradient.micro_batch;
  Draft::use(task, gradient.buffer, gradient.role(), Access::read);
  Draft::use(task, sum, Role::local_sum);
}

void Accumulate::run(TaskContext& context, const Task& task, device::Lane& lane) {
  if (task.first) return cast(lane, gradients_of(context, task), sum_of(context, task));
  device::add(lane, gradients_of(context, task), sum_of(context, task));
}

void Round::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::round, gradient, sum.starts);
  Draft::use(task, gradient.buffer, gradient.role(), Access::write);
  Draft::use(task, sum.buffer, Role::local_sum, Access::read);
}

void Round::run(TaskContext& context, const Task& task, device::Lane& lane) {
  cast(lane, sum_of(context, task), gradients_of(context, task));
}

}  // namespace strata::runtime
