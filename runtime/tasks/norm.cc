#include "runtime/tasks/norm.h"

#include "base/error.h"
#include "device/ops/step/consensus.h"
#include "device/ops/step/gradient_sum.h"
#include "runtime/plan/step_state.h"
#include "runtime/tasks/collectives/reduce.h"

namespace strata::runtime {

using device::View;

void Norm::add(Draft& draft) const {
  const UnitLayout& layout = draft.layout(unit);
  STRATA_CHECK_EQ(sum >= 0, draft.plan.has_sums());
  Task& task = draft.add_task(TaskKind::norm, LaneId::reduce, unit);
  if (sum >= 0) {
    Draft::use(task, Slice{sum, 0, device::fp32_bytes(range.size())}, Role::sum, Access::read);
    task.begin = range.begin;
    task.end = range.end;
    if (range.size()) task.part = chunk;
    task.cost.bytes = static_cast<double>(device::fp32_bytes(range.size() ? range.size() : layout.shard()));
  } else {
    Draft::use(task, gradients, Role::gradients, Access::read);
    task.cost.bytes = static_cast<double>(draft.bytes_of(layout.padded()));
    STRATA_CHECK_EQ(shared_gradients.size(), layout.sharers.size());
    for (std::size_t i = 0; i < layout.sharers.size(); ++i) {
      Draft::use(task, shared_gradients[i], Role::shared_gradients, Access::read);
      const ElementRange& elements = draft.layout(layout.sharers[i]).shared->elements;
      task.cost.bytes += static_cast<double>(draft.bytes_of(elements.size()));
    }
  }
  Draft::use(task, draft.plan.control.squares, Role::squares, Access::update);
}

void Norm::run(TaskContext& context, const Task& task, device::Lane& lane) {
  device::ExactSum* squares = &context.at<SquareState>(context.plan.control.squares)->squares;
  // The first of the ranks that share each layer counts what all of them have.
  const std::size_t counted = context.rank.tensor > 0 ? context.layout(task).uncut : 0;
  // `view` holds elements from `begin` on.
  const auto add = [&](const View& view, std::size_t begin) {
    const std::size_t skipped = std::min(counted - std::min(counted, begin), view.size);
    if (skipped < view.size) gradient_square_sum(lane, view.sub(skipped, view.size - skipped), {}, squares);
  };
  if (holds_tile(context.plan, task)) return add(context.view(task, Role::sum, device::DType::fp32), task.begin);
  if (context.plan.has_sums())
    return add(own_part_of_sum(context, task), context.layout(task).shards.piece(context.rank).begin);
  const View gradients = context.view(task, Role::gradients);
  const ElementRange shared = also_in_shared_gradients(context, task);
  const auto alone = [&](std::size_t begin, std::size_t end) {
    if (begin < end) add(gradients.sub(begin, end - begin), begin);
  };
  alone(0, shared.begin);
  if (shared.size() && shared.begin >= counted)
    gradient_square_sum(lane, context.view(task, Role::shared_gradients).sub(0, shared.size()),
                        gradients.sub(shared.begin, shared.size()), squares);
  alone(shared.end, context.layout(task).padded());
}

void Consensus::add(Draft& draft) const {
  const ControlBuffers& control = draft.plan.control;
  Task& task = draft.add_task(TaskKind::consensus, LaneId::reduce, -1);
  Draft::use(task, control.squares, Role::squares, Access::update);
  Draft::use(task, control.losses, Role::losses, Access::update);
  Draft::use(task, control.state, Role::state, Access::update);
  const std::size_t bytes = sizeof(device::StepMessage), ranks = static_cast<std::size_t>(draft.request.mesh.world);
  Draft::use(task, draft.add_buffer("messages", Kind::staging, Tier::device, bytes * ranks, false), Role::staging,
             Access::write);
  draft.plan.comm_bytes.consensus += bytes * (ranks - 1);
  draft.plan.comm_bytes.between_nodes += draft.levels(Peers::all).sent_to_all(bytes);
  task.cost.sent_bytes = static_cast<double>(bytes * (ranks - 1));
  task.cost.between_bytes = static_cast<double>(draft.levels(Peers::all).sent_to_all(bytes));
}

void Consensus::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const ControlBuffers& control = context.plan.control;
  auto* state = context.at<StepState>(control.state);
  pack_message(lane, &context.at<SquareState>(control.squares)->squares, &context.at<LossState>(control.losses)->loss,
               &state->requests, &state->message);
  auto* all = reinterpret_cast<device::StepMessage*>(context.view(task, Role::staging, device::DType::fp32).data);
  context.communicators.all.exchange(reinterpret_cast<const std::byte*>(&state->message), sizeof(device::StepMessage),
                                     reinterpret_cast<std::byte*>(all));
  resolve_step(lane, all, static_cast<std::size_t>(context.plan.ranks()), &state->scalars, &state->result);
}

}  // namespace strata::runtime
