#pragma once
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/execute/executor.h"
#include "runtime/plan/step_state.h"
#include "runtime/tasks/task_context.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {

// Runs a few tasks of one rank: they are drafted, then placed, then run one at a time. Buffers that tasks share exist
// as in a plan. A unit's state exists as far as the test adds it.
class TaskRun {
 public:
  // A test's own world must outlive it. Without one, this is a single rank, numbered `rank` among the ranks of the
  // request, and no task may communicate.
  explicit TaskRun(const PlanRequest& request, comm::World* world = nullptr, int rank = 0)
      : request_(request),
        draft(request_),
        own_world_(world ? nullptr : comm::solo_world()),
        world_(world ? *world : *own_world_),
        rank_(world ? world->rank() : rank) {
    ControlBuffers& control = draft.plan.control;
    control.batch = add_buffer(static_cast<std::size_t>(request.accumulation) * draft.model.batch.bytes());
    control.state = add_buffer(sizeof(StepState));
    control.losses = add_buffer(LossState::bytes(draft.model.units.size()));
    if (!request.forward_only) control.squares = add_buffer(sizeof(SquareState));
    if (draft.plan.cyclic) control.pending = add_buffer(sizeof(device::StepScalars), Tier::host);
    draft.plan.host_control = control;
    draft.plan.state_buffers.resize(draft.model.units.size());
  }

  int add_buffer(std::size_t bytes, Tier tier = Tier::device) {
    return draft.add_buffer("made", Kind::workspace, tier, bytes, true);
  }
  // The newest task.
  const Task& task() const { return draft.plan.tasks.back(); }

  // Ends the drafting. Memory starts as NaN, except that memory shared by tasks starts as zeros.
  void place(const device::Optimizer& optimizer = {}) {
    std::array<std::size_t, kTiers> at{};
    for (Buffer& buffer : draft.plan.buffers) {
      std::size_t& end = at[static_cast<std::size_t>(buffer.tier)];
      buffer.offset = std::exchange(end, end + buffer.bytes);
    }
    for (std::size_t tier = 0; tier < kTiers; ++tier) draft.plan.memory[tier].peak = at[tier];
    storage_.emplace(draft.plan, world_, offload::IoOptions{});
    for (int b = 0; b < static_cast<int>(draft.plan.buffers.size()); ++b) std::memset(bytes(b).data(), 0xff, size(b));
    const ControlBuffers& control = draft.plan.control;
    for (const int b : {control.batch, control.state, control.losses, control.squares, control.pending})
      if (b >= 0) std::memset(bytes(b).data(), 0, size(b));
    gather_ = world_.open(lane_);
    reduce_ = world_.open(lane_);
    context.emplace(
        TaskContext{draft.plan,
                    draft.model,
                    optimizer,
                    draft.plan.mesh().at(rank_),
                    *storage_,
                    {*gather_, *gather_, *reduce_, *reduce_, *reduce_, *reduce_, *gather_, *gather_, *gather_}});
    context->received.resize(draft.plan.tasks.size());
  }
  // As the executor would.
  void run(std::size_t index = 0) {
    const Task& due = draft.plan.tasks[index];
    run_of(due.kind)(*context, due, lane_);
    lane_.synchronize();
  }

  // A buffer's memory, once it is placed.
  std::span<std::byte> bytes(int buffer) const {
    return {storage_->view(buffer, device::DType::fp32).data, size(buffer)};
  }
  template <typename T>
  std::span<T> as(int buffer) const {
    return {reinterpret_cast<T*>(bytes(buffer).data()), size(buffer) / sizeof(T)};
  }
  StepState& state() const { return *reinterpret_cast<StepState*>(bytes(draft.plan.control.state).data()); }
  LossState& losses() const { return *reinterpret_cast<LossState*>(bytes(draft.plan.control.losses).data()); }
  SquareState& squares() const { return *reinterpret_cast<SquareState*>(bytes(draft.plan.control.squares).data()); }
  const Storage& storage() const { return *storage_; }

 private:
  std::size_t size(int buffer) const { return draft.plan.buffers[static_cast<std::size_t>(buffer)].bytes; }

  PlanRequest request_;

 public:
  Draft draft;
  std::optional<TaskContext> context;

 private:
  std::unique_ptr<comm::World> own_world_;
  comm::World& world_;
  int rank_;
  std::optional<Storage> storage_;
  AbortToken abort_;
  device::Lane lane_{"test", 1, 0, abort_};
  std::unique_ptr<comm::Communicator> gather_, reduce_;
};

// The one use of the task in that role; it must have one.
inline const Use& use_of(const Task& task, Role role) {
  const Use* found = nullptr;
  for (const Use& use : task.uses)
    if (use.role == role) {
      STRATA_CHECK(found == nullptr);
      found = &use;
    }
  STRATA_CHECK(found != nullptr);
  return *found;
}

}  // namespace strata::runtime
