#pragma once
// runtime/execute/ runs a plan as it is: the Executor (here) issues the list, step after step, and takes no decision.
// lanes.h are the queues that it fills, lane_borders.h what becomes of them between two steps, task_table.h is what
// each task of the list runs (runtime/tasks/), step_graph.h the step as one CUDA graph.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "device/algorithm_table.h"
#include "device/fault_watch.h"
#include "device/lane.h"
#include "device/ops/step/consensus.h"
#include "device/ops/step/optimizer.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/execute/chunk_gather.h"
#include "runtime/execute/held_time.h"
#include "runtime/execute/lane_borders.h"
#include "runtime/execute/lanes.h"
#include "runtime/execute/places.h"
#include "runtime/execute/step_graph.h"
#include "runtime/memory/memory_meter.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/span.h"
#include "runtime/tasks/border.h"
#include "runtime/tasks/save.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// Issues a plan, step after step, and takes no decision: it knows tasks, not stages. Owns the arenas, lanes, events
// and communicators of one rank; plan, model and world outlive it.
class Executor {
 public:
  // Proves the plan first (find_violation): one that does not hold ends the program.
  Executor(const StepPlan& plan, const models::Model& model, comm::World& world, const device::Optimizer& optimizer,
           int threads, const offload::IoOptions& io = {});
  // Of a plan that was made beside another's (PlanRequest::beside): in that one's memory, lanes and communicators,
  // while it is drained. The other executor outlives it.
  Executor(const StepPlan& plan, const models::Model& model, Executor& other);
  ~Executor();

  models::BatchRows batch(int micro_batch) { return border_.batch(micro_batch); }

  // Runs one step until the host has read what came of it. What that does not depend on goes on: the next step, or
  // drain(), waits for it. `requests` are added up over the ranks, with which all of them end the step
  // (StepResult::stop). Throws Aborted when the run was aborted.
  device::StepResult step(const device::StepScalars& scalars, std::uint64_t requests);

  // Where the run generates: one step over the first `rows` tokens of batch(0), at positions [first, first + rows),
  // behind those of the calls before. Returns the logits of the last of them, [vocabulary], valid until the next call.
  std::span<const float> generate(std::size_t first, std::size_t rows);

  // After a step of a classifier's forwards alone: its scores (LossUnit::classes).
  std::span<const float> scores() const;

  // ChunkGather's, of plans with chunks. The second is collective.
  std::span<std::byte> own_chunk() const { return chunks_.own(); }
  std::span<const std::byte> gather_chunks();

  // After a step: the first unit whose output was not finite; -1: none.
  int first_nonfinite_unit() const { return border_.first_nonfinite_unit(); }
  // Summed over the labels of this rank's micro-batches of the last step.
  const device::ExactSum& loss_sum() const { return border_.losses().loss; }
  bool skipped() const { return border_.state().scalars.skip != 0; }

  // By task, of the newest step that was issued task by task; {0, 0}: left out of it. How many steps have been launched
  // as a graph since. Whole after drain(), or after a step that time_next_step() was called before.
  std::span<const Span> spans() const { return spans_; }
  std::int64_t steps_since_spans() const { return steps_since_spans_; }
  // The next step is issued task by task and waited for to its last task, so that spans() are its own.
  void time_next_step() { time_next_step_ = true; }
  // Steps launched as a graph so far (step_graph.h). If the plan could be one and the device refused to record it: what
  // it says, else empty; steps are issued task by task then.
  std::int64_t graph_steps() const { return graph_steps_; }
  std::string graph_refusal() const { return graph_ ? graph_->refusal() : ""; }
  const Memory& measured_memory() const { return meter_.peak(); }
  // Sent by this rank so far; exact after drain().
  comm::CommBytes comm_bytes() const { return queues_.sent(); }
  // Read from and written to the other tiers so far.
  const IoBytes& io_bytes() const { return site_->moved; }
  // What the proof of the plan took.
  double validate_ms() const { return validate_ms_; }
  // How the drives of the nvme tier are read and written, and why no better way is (Swap::describe); empty: no such
  // tier.
  std::string drives() const { return storage_.swap() ? storage_.swap()->describe() : ""; }

  // Of a plan beside another's, before its first step since that one's last: fills what has to hold something.
  void refill();
  // Waits for what the last step left to run on; a checkpoint goes on.
  void settle() { queues_.settle(); }
  // The same, and carries out the update that it left if the plan is a cycle: before anything but the next step looks
  // at the state, at spans() or at what was sent.
  void drain();

  // After drain(): the next step's tasks of the lane checkpoint run, and do what `saver` says.
  void save_beside_next_step(Saver& saver);
  // Returns when these have ended; issues them alone if no step has.
  void finish_saving();
  // Before `saver` is destroyed: the same, but after a failure nothing is issued or thrown any more.
  void forget(const Saver& saver) noexcept;
  // Of plans with a checkpoint's tasks.
  device::Lane& checkpoint_lane() { return queues_.of(LaneId::checkpoint); }
  // For how long tasks have waited for a checkpoint to read what they write, over all steps; exact after drain().
  double held_ms() const { return held_.ms(); }

  // Before the first step, of which `done` were done before: from then on tells where the lanes are.
  void publish(RankPlaces& places, std::int64_t done) { keeper_.emplace(plan_, places, done); }

  // Before the first step: what products run by, where there is a choice (device/algorithm_table.h); null: none.
  void use_algorithms(std::shared_ptr<const device::AlgorithmTable> table);
  const std::shared_ptr<const device::AlgorithmTable>& algorithms() const { return algorithms_; }

  // What computes the attention of a GPU's run, and why nothing faster; empty on the CPU.
  const std::string& attention() const { return attention_; }

  Storage& storage() { return storage_; }
  const Storage& storage() const { return storage_; }

 private:
  void prepare(const device::Optimizer& optimizer);
  bool is_gpu() const { return plan_.device.kind != device::Kind::cpu; }
  device::Lane& lane_of(const Task& task) const { return queues_.of(task.lane); }
  // Whether the task's work is queued in a lane of a GPU.
  bool on_gpu(const Task& task) const { return is_gpu() && task.lane != LaneId::host && !on_host(task.lane); }
  // Whether the thread that issues waits for the end of the other task, in place of the task's lane.
  bool waits_here(const Task& task, const Task& other) const;
  bool due(const Task& task) const;

  void issue_step();
  // Those of the plan's tasks that are due.
  void issue_due();
  void issue(std::size_t index);
  // The lane gets to the task, or is through with it: tells spans() if it is `stamped`, and the places.
  void mark(device::Lane& lane, std::size_t index, bool stamped, bool begins);
  void wait(const Task& task, int other);
  void wait_here(int other);
  // Waits for what a checkpoint reads, and keeps how long.
  void wait_for_saves(std::size_t index);
  // f(), whose exception sets the run's token before it unwinds: lanes may be waiting for what is not issued any more.
  template <typename F>
  void or_abort(const F& f);
  void collect(bool early);
  // The step as one launch; false where this one has to be issued task by task.
  bool launch_graph();
  bool record_graph();
  // Nothing waits any more for what lanes of the device have recorded.
  void forget_events();

  const StepPlan& plan_;
  const models::Model& model_;
  const double validate_ms_;
  int rank_;
  AbortToken& abort_;
  device::FaultWatch fault_watch_;
  Storage storage_;
  Border border_;
  std::unique_ptr<Queues> own_;  // null: another's
  Queues& queues_;
  ChunkGather chunks_;
  const LaneBorders borders_;  // lanes of a GPU that go on are not waited for between two steps
  std::optional<Site> site_;
  std::vector<device::Event> events_;  // by task
  std::vector<bool> awaited_;          // by task: some lane waits for its event
  std::vector<bool> issued_;           // by task: it has run, and its event, if it is awaited, tells of the end
  std::vector<Span> spans_;            // by task
  HeldTime held_;
  MemoryMeter meter_;
  std::vector<std::string> names_;  // by task
  std::optional<PlaceKeeper> keeper_;
  std::shared_ptr<const device::AlgorithmTable> algorithms_;
  std::string attention_;
  bool has_pending_ = false;      // the last step's update is still to be done
  const Saver* saver_ = nullptr;  // of the checkpoint that the next step begins

  bool recording_ = false, draining_ = false, time_next_step_ = false, timed_ = false;
  std::int64_t steps_ = 0, graph_steps_ = 0, steps_since_spans_ = 0;
  std::optional<StepGraph>
      graph_;                 // none where no step can be one; destroyed before the communicators it holds work of
  IoBytes moved_by_graph_{};  // by one launch
};

}  // namespace strata::runtime
