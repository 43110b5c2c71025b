#pragma once
// runtime/execute/ runs a plan: the Executor (here) issues its tasks, step after step, and makes no decisions. lanes.h
// has the queues that it fills, says how they behave between two steps, and records a step as one CUDA graph;
// task_table.cc maps kinds of task to functions (runtime/tasks/).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/algorithm_table.h"
#include "device/fault_watch.h"
#include "device/lane.h"
#include "device/ops/step/consensus.h"
#include "device/ops/step/optimizer.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/execute/held_time.h"
#include "runtime/execute/lanes.h"
#include "runtime/execute/rank_progress.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"
#include "runtime/tasks/step_boundary.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Issues a plan, step after step, on one rank. It depends on tasks, not on ZeRO stages. Owns the rank's arenas, lanes,
// events and communicators; plan, model and world must outlive it.
class Executor {
 public:
  // Collective. Proves the plan first (find_violation); a plan with a violation aborts the program.
  Executor(const StepPlan& plan, const models::Model& model, comm::World& world, const device::Optimizer& optimizer,
           int threads, const offload::IoOptions& io = {});
  // For a plan made with PlanRequest::memory_of: shares the memory, lanes and communicators of the executor of that
  // other plan, which must outlive this one. It may run only while the other is drained.
  Executor(const StepPlan& plan, const models::Model& model, Executor& other);
  ~Executor();

  models::BatchRows batch(int micro_batch) { return boundary_.batch(micro_batch); }

  // Runs one step until the host has read its results. Work on which these do not depend continues; the next step or
  // drain() waits for it. `requests` are summed over the ranks, and all of them see the sum (StepResult::requests).
  // Throws Aborted if the run was aborted.
  device::StepResult step(const device::StepScalars& scalars, std::uint64_t requests);

  // Runs one step of a run that generates, over the first `rows` tokens of batch(0), at positions [first, first +
  // rows), which must follow the positions of earlier calls. Returns the last row's logits [vocabulary], valid until
  // the next call.
  std::span<const float> generate(std::size_t first, std::size_t rows);

  // The scores of a classifier (LossUnit::classes), after a forward-only step.
  std::span<const float> scores() const;

  // See ChunkGather; for plans with chunks. gather_chunks is collective.
  std::span<std::byte> own_chunk() const { return chunks_.own(); }
  std::span<const std::byte> gather_chunks();

  // The first unit with non-finite output in the last step; -1: none.
  int first_nonfinite_unit() const { return boundary_.first_nonfinite_unit(); }
  // The sum of losses over the labels in this rank's micro-batches of the last step.
  const device::ExactSum& loss_sum() const { return boundary_.losses().loss; }
  bool skipped() const { return boundary_.state().scalars.skip != 0; }

  // When each task ran in the newest step that was issued task by task; {0, 0}: the step left the task out. Complete
  // after drain(), or after a step for which time_next_step() was called. steps_since_spans: steps launched as a graph
  // since then.
  std::span<const Span> spans() const { return spans_; }
  std::int64_t steps_since_spans() const { return steps_since_spans_; }
  // Makes step() issue the next step task by task and wait for its last task, so that spans() are that step's.
  void time_next_step() { time_next_step_ = true; }
  // Steps launched as a graph so far (StepGraph). graph_refusal: the device's message if it refused to record the plan
  // (all steps are then issued task by task); otherwise empty.
  std::int64_t graph_steps() const { return graph_steps_; }
  std::string graph_refusal() const { return graph_ ? graph_->refusal() : ""; }
  const Memory& measured_memory() const { return meter_.peak(); }
  // Bytes sent by this rank so far; exact after drain().
  comm::CommBytes comm_bytes() const { return queues_.sent(); }
  // Bytes read from and written to the other tiers so far.
  const IoBytes& io_bytes() const { return context_->moved; }
  // The time that proving the plan took.
  double validate_ms() const { return validate_ms_; }
  // How the drives of the nvme tier are accessed, and why not in a faster way (Swap::describe); empty if there is no
  // such tier.
  std::string drives() const { return storage_.swap() ? storage_.swap()->describe() : ""; }

  // Writes the buffers that need initial contents. For a plan that shares another's memory: call it before the first
  // step after one of that plan's.
  void refill();
  // Waits for the work that the last step left running, except a checkpoint's.
  void synchronize() { queues_.synchronize(); }
  // Like synchronize(), but in a cyclic plan it also runs the update that the step left. Call it before anything but
  // the next step uses the state, spans() or comm_bytes().
  void drain();

  // After drain(): makes the next step begin a checkpoint, with the work of `saver` in its checkpoint lane.
  void save_during_next_step(Saver& saver);
  // Waits for the checkpoint's tasks. If no step has issued them, issues them first.
  void finish_saving();
  // Call it before `saver` is destroyed. Waits for the tasks that were issued; issues and throws nothing.
  void forget(const Saver& saver) noexcept;
  // Only for plans with a checkpoint's tasks.
  device::Lane& checkpoint_lane() { return queues_.of(LaneId::checkpoint); }
  // The time that tasks have waited until a checkpoint had read the state that they overwrite; exact after drain().
  double held_ms() const { return held_.ms(); }

  // Starts reporting the lanes' progress to `progress`. Call it before the first step; `done`: steps of earlier runs.
  void publish(RankProgress& progress, std::int64_t done) { publisher_.emplace(plan_, progress, done); }

  // Sets the algorithms of products (device/algorithm_table.h); null: no table. Call it before the first step.
  void use_algorithms(std::shared_ptr<const device::AlgorithmTable> table);
  const std::shared_ptr<const device::AlgorithmTable>& algorithms() const { return algorithms_; }

  // The implementation of attention on a GPU, and why no faster one is used; empty on the CPU.
  const std::string& attention() const { return attention_; }

  Storage& storage() { return storage_; }
  const Storage& storage() const { return storage_; }

 private:
  void prepare(const device::Optimizer& optimizer);
  bool is_gpu() const { return plan_.device.kind != device::Kind::cpu; }
  device::Lane& lane_of(const Task& task) const { return queues_.of(task.lane); }
  // True if the task's work is queued in a lane of a GPU.
  bool on_gpu(const Task& task) const { return is_gpu() && task.lane != LaneId::host && !on_host(task.lane); }
  // True if the issuing thread, rather than the task's lane, waits for the end of the other task.
  bool waits_here(const Task& task, const Task& other) const;
  bool due(const Task& task) const;

  void issue_step();
  // Issues the tasks that are due (see `When`).
  void issue_due();
  void issue(std::size_t index);
  // Queues the recording of the task's start or end: in spans() if it is `stamped`, and in the rank's progress.
  void mark(device::Lane& lane, std::size_t index, bool stamped, bool begins);
  void wait(const Task& task, int other);
  void wait_here(int other);
  // Waits until a checkpoint has read the state that the task overwrites, and records how long.
  void wait_for_saves(std::size_t index);
  // Calls f(). An exception sets the abort token before it unwinds, because lanes may wait for tasks that will no
  // longer be issued.
  template <typename F>
  void abort_on_exception(const F& f);
  void collect(bool early);
  // Runs the step as one launch; returns false if it has to be issued task by task.
  bool launch_graph();
  bool record_graph();
  // Forgets the events that device lanes have recorded, so that nothing waits for them.
  void forget_events();

  const StepPlan& plan_;
  const models::Model& model_;
  const double validate_ms_;
  int rank_;
  AbortToken& abort_;
  device::FaultWatch fault_watch_{plan_.device, rank_, abort_};
  Storage storage_;
  StepBoundary boundary_{plan_, model_, storage_};
  std::unique_ptr<Queues> own_;  // null: queues_ are another executor's
  Queues& queues_;
  ChunkGather chunks_{plan_, storage_, *queues_.gather};
  // GPU lanes that continue are not waited for between steps.
  const LaneBoundaries boundaries_ = lane_boundaries(plan_);
  std::optional<TaskContext> context_;
  std::vector<device::Event> events_;  // one per task
  // Per task: a lane waits for its event; it was issued, so its event (if it is awaited) refers to a run.
  std::vector<bool> awaited_ = std::vector<bool>(plan_.tasks.size()), issued_ = awaited_;
  std::vector<Span> spans_ = std::vector<Span>(plan_.tasks.size());  // one per task
  HeldTime held_{plan_.tasks.size()};
  MemoryMeter meter_{plan_};
  std::vector<std::string> names_;  // one per task
  std::optional<ProgressPublisher> publisher_;
  std::shared_ptr<const device::AlgorithmTable> algorithms_;
  std::string attention_;
  bool has_pending_ = false;      // the last step's update is still to be done
  const Saver* saver_ = nullptr;  // saves the checkpoint that the next step begins

  bool recording_ = false, draining_ = false, time_next_step_ = false, timed_ = false;
  std::int64_t steps_ = 0, graph_steps_ = 0, steps_since_spans_ = 0;
  // Empty if no step can be a graph. Destroyed before the communicators, because it holds their work.
  std::optional<StepGraph> graph_;
  IoBytes moved_by_graph_{};  // bytes moved by one launch
};

// The function that queues a task's work in its lane (runtime/tasks). Null for tasks of the host lane, which
// StepBoundary runs.
using RunTask = void (*)(TaskContext& context, const Task& task, device::Lane& lane);
RunTask run_of(TaskKind kind);

}  // namespace strata::runtime
