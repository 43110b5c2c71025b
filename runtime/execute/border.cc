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
  const std::size_t all = plan_.buffers[static_cast<std::size_t>(batch_)].bytes / sizeof(std::uint32_t);
  const std::size_t tokens = plan_.tokens;
  STRATA_CHECK_LE((g + 1) * 3 * tokens, all);
  auto* base = at<std::uint32_t>(batch_) + g * 3 * tokens;
  return {{base, tokens}, {reinterpret_cast<std::int32_t*>(base + tokens), tokens}, {base + 2 * tokens, tokens}};
}

void Border::set(const device::StepScalars& scalars, std::uint64_t requests) {
  scalars_ = scalars;
  requests_ = requests;
}

void Border::run(const Task& task) {
  auto* state = at<StepState>(state_);
  if (task.kind == TaskKind::carry) *at<device::StepScalars>(task.buffer(Role::pending)) = state->scalars;
  if (task.kind != TaskKind::host_write) return;
  *state = StepState{};
  state->scalars = scalars_;
  state->stop_requested = requests_;
  std::memset(at<std::byte>(losses_), 0, LossState::bytes(model_.units.size()));
  if (squares_ >= 0) *at<SquareState>(squares_) = SquareState{};
}

}  // namespace strata::runtime
