#include "runtime/execute/border.h"

#include <cstring>

#include "base/error.h"

namespace strata::runtime {

Border::Border(const StepPlan& plan, const models::Model& model, const Storage& storage)
    : plan_(plan), model_(model), storage_(storage) {
  for (const Task& task : plan.tasks) {
    if (task.lane != LaneId::host) continue;
    const auto find = [&](int& buffer, Role role) {
      if (const int found = task.buffer(role); found >= 0) buffer = found;
    };
    find(batch_, Role::batch);
    find(state_, Role::state);
    find(losses_, Role::losses);
    find(squares_, Role::squares);
    find(logits_, Role::logits);
  }
}

Border::BatchSpans Border::batch(int micro_batch) const {
  const auto g = static_cast<std::size_t>(micro_batch);
  const std::size_t tokens = plan_.tokens, bytes = tokens * models::Batch::kBytesPerToken;
  STRATA_CHECK_LE((g + 1) * bytes, plan_.buffers[static_cast<std::size_t>(batch_)].bytes);
  auto* base = reinterpret_cast<std::uint32_t*>(at<std::byte>(batch_) + g * bytes);
  return {{base, tokens},
          {reinterpret_cast<std::int32_t*>(base + tokens), tokens},
          {base + 2 * tokens, tokens},
          {reinterpret_cast<device::RowRange*>(base + 3 * tokens), tokens}};
}

void Border::set(const device::StepScalars& scalars, bool stop_requested) {
  scalars_ = scalars;
  stop_requested_ = stop_requested;
}

void Border::run(const Task& task) {
  auto* state = at<StepState>(state_);
  if (task.kind == TaskKind::carry) *at<device::StepScalars>(task.buffer(Role::pending)) = state->scalars;
  if (task.kind != TaskKind::host_write) return;
  *state = StepState{};
  state->scalars = scalars_;
  state->stop_requested = stop_requested_ ? 1 : 0;
  std::memset(at<std::byte>(losses_), 0, LossState::bytes(model_.units.size()));
  if (squares_ >= 0) *at<SquareState>(squares_) = SquareState{};
}

}  // namespace strata::runtime
