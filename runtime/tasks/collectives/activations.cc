#include "runtime/tasks/collectives/activations.h"

#include "base/error.h"
#include "device/ops/elementwise.h"

namespace strata::runtime {
namespace {

using device::DType;
using device::View;

// The range that one rank adds.
comm::ShardedRange range_of(std::size_t elements, std::size_t ranks, device::StorageFormat format) {
  const std::size_t bytes = stored_bytes(format, elements);
  return {bytes / ranks, 0, bytes};
}

std::size_t ranks_of(const Draft& draft) {
  return static_cast<std::size_t>(draft.plan.mesh().tensor);
}

// Elements of a seam's partial sums and of their total: whole rows, the same number for every rank.
std::size_t elements_for(const Draft& draft, const models::Seam& seam) {
  const std::size_t row = draft.model.hidden, ranks = ranks_of(draft);
  const std::size_t rows = (seam.elements + row - 1) / row;
  return (rows + ranks - 1) / ranks * ranks * row;
}

std::size_t own_elements(const StepPlan& plan, const models::Model& model) {
  return plan.rows * model.hidden;
}

}  // namespace

std::size_t Exchange::partial_bytes(const Draft& draft, const models::Seam& seam) {
  return device::fp32_bytes(seam.gathers ? seam.elements : elements_for(draft, seam));
}

std::size_t Exchange::total_bytes(const Draft& draft, const models::Seam& seam) {
  if (seam.gathers) return ranks_of(draft) * device::fp32_bytes(seam.elements);
  const std::size_t elements = elements_for(draft, seam);
  return draft.bytes_of(seam.own_rows ? elements / ranks_of(draft) : elements);
}

void Exchange::add(Draft& draft) const {
  const std::size_t ranks = ranks_of(draft), others = ranks - 1;
  const comm::Levels& levels = draft.levels(Peers::tensor);
  const auto send = [&](Task& task, std::size_t pieces, std::size_t gathered, std::uint64_t between) {
    task.cost.bytes = static_cast<double>(ranks * pieces + gathered);
    task.cost.sent_bytes = static_cast<double>(others * (pieces + gathered));
    task.cost.between_bytes = static_cast<double>(between);
    draft.plan.comm_bytes.all_to_all += others * pieces;
    draft.plan.comm_bytes.all_gather += others * gathered;
    draft.plan.comm_bytes.between_nodes += between;
  };
  if (seam.gathers) {
    Task& task = draft.add_task(TaskKind::exchange, LaneId::exchange, unit, micro_batch);
    task.stretch = stretch;
    task.at_once = seam.elements;
    task.backward = backward;
    Draft::use(task, partial, Role::partial, Access::read);
    Draft::use(task, total, Role::total, Access::write);
    const std::size_t piece = device::fp32_bytes(seam.elements);
    return send(task, 0, piece, levels.gathered(piece));
  }
  const std::size_t elements = elements_for(draft, seam), own = elements / ranks;
  Task& task = draft.add_task(TaskKind::exchange, LaneId::exchange, unit, micro_batch);
  task.stretch = stretch;
  task.at_once = own;
  task.own_rows = seam.own_rows;
  task.backward = backward;
  const auto staging = draft.add_buffer(draft.text_of("partial sums of", {unit}), Kind::staging, Tier::device,
                                        device::fp32_bytes(elements), false);
  Draft::use(task, partial, Role::partial, Access::read);
  Draft::use(task, staging, Role::staging, Access::write);
  if (seam.bias) {
    task.pool = models::pool_of(*seam.bias);
    task.begin = models::place_in_pool(*seam.bias);
    task.end = task.begin + draft.model.hidden;
    const bool is_frozen = task.pool == PoolKind::frozen;
    Draft::use(task, is_frozen ? frozen : parameters, is_frozen ? Role::frozen : Role::parameters, Access::read);
  }
  Draft::use(task, total, Role::total, Access::write);
  const std::size_t rounded = seam.own_rows ? 0 : draft.bytes_of(own);
  send(task, device::fp32_bytes(own), rounded,
       levels.exchanged(range_of(elements, ranks, device::StorageFormat::fp32)) +
           (rounded > 0 ? levels.gathered(rounded) : 0));
}

void Exchange::run(TaskContext& context, const Task& task, device::Lane& lane) {
  comm::Communicator& communicator = context.communicators.tensor;
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const View partial = context.view(task, Role::partial, DType::fp32), staging = context.view(task, Role::staging);
  const View total = context.view(task, Role::total);
  const std::size_t own = task.at_once, elements = own * ranks;
  if (!staging) {  // the seam gathers
    const auto range = range_of(elements, ranks, device::StorageFormat::fp32);
    return communicator.all_gather(range, partial.data, total.data);
  }
  device::ConstView bias;
  if (task.end > task.begin)
    bias = context.view(task, task.pool == PoolKind::frozen ? Role::frozen : Role::parameters)
               .sub(task.begin, task.end - task.begin);
  auto& pieces = context.received[static_cast<std::size_t>(&task - context.plan.tasks.data())];
  pieces.resize(ranks);
  communicator.all_to_all(range_of(elements, ranks, device::StorageFormat::fp32), partial.data, staging.data,
                          pieces.data());
  const View sum = total.sub(task.own_rows ? 0 : static_cast<std::size_t>(communicator.rank()) * own, own);
  tree_sum_of_pieces(lane, pieces, bias, sum);
  communicator.release();
  if (task.own_rows) return;
  communicator.all_gather(range_of(elements, ranks, format_of(context.plan.dtype)), sum.data, total.data);
}

std::size_t GatherRows::rows_bytes(const Draft& draft, std::size_t matrices) {
  return draft.bytes_of(matrices * own_elements(draft.plan, draft.model));
}

std::size_t GatherRows::full_bytes(const Draft& draft, std::size_t matrices) {
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
  Draft::use(task, full, of_seam ? Role::total : Role::target, Access::write);
  const std::size_t sent = others * rows_bytes(draft, matrices);
  const std::uint64_t between = matrices * draft.levels(Peers::tensor).gathered(rows_bytes(draft));
  task.cost.bytes = static_cast<double>(rows_bytes(draft, matrices) + full_bytes(draft, matrices));
  task.cost.sent_bytes = static_cast<double>(sent);
  task.cost.between_bytes = static_cast<double>(between);
  draft.plan.comm_bytes.all_gather += sent;
  draft.plan.comm_bytes.between_nodes += between;
}

void GatherRows::run(TaskContext& context, const Task& task, device::Lane&) {
  const bool of_seam = task.stretch >= 0;
  const device::View rows = context.view(task, of_seam ? Role::partial : Role::source);
  const device::View full = context.view(task, of_seam ? Role::total : Role::target);
  comm::Communicator& communicator = context.communicators.tensor;
  const std::size_t own = own_elements(context.plan, context.model),
                    all = own * static_cast<std::size_t>(communicator.size());
  for (std::size_t i = 0; i < task.at_once; ++i) {
    const device::View matrix = full.sub(i * all, all);
    communicator.all_gather({own * size_of(rows.dtype), 0, matrix.bytes()}, rows.sub(i * own, own).data, matrix.data);
  }
}

void TakeRows::add(Draft& draft) const {
  Task& task = draft.add_task(TaskKind::take_rows, LaneId::compute, unit, micro_batch);
  Draft::use(task, full, Role::source, Access::read);
  Draft::use(task, rows, Role::target, Access::write);
  task.cost.bytes = static_cast<double>(2 * GatherRows::rows_bytes(draft));
}

void TakeRows::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const std::size_t own = own_elements(context.plan, context.model);
  const std::size_t first = own * static_cast<std::size_t>(context.rank.tensor);
  cast(lane, context.view(task, Role::source).sub(first, own), context.view(task, Role::target).sub(0, own));
}

}  // namespace strata::runtime
