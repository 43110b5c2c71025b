#pragma once
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
#include "device/graph.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/consensus.h"
#include "device/ops/optimizer.h"
#include "device/step_scalars.h"
#include "models/model.h"
#include "runtime/execute/storage.h"
#include "runtime/execute/task_runner.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {

// When a task ran, in ns of the steady clock.
struct Span {
  std::int64_t begin = 0, end = 0;
};

// Memory as it was seen while buffers came and went; the same form as the plan's prediction.
class MemoryMeter {
 public:
  explicit MemoryMeter(const StepPlan& plan);
  // The task is issued: its buffers that were not alive come to life, those that it uses last end after it.
  void issue(std::size_t task);
  const Memory& peak() const { return peak_; }

 private:
  void begin(std::size_t buffer);
  const StepPlan& plan_;
  std::vector<bool> alive_;
  std::vector<std::size_t> uses_left_, uses_;
  std::array<std::array<std::size_t, kKinds>, kTiers> now_{};
  Memory peak_{};
};

// Issues a plan, step after step, and takes no decision: it knows tasks, not stages. Owns the arenas, lanes, events
// and communicators of one rank; plan, model and world outlive it.
class Executor {
 public:
  Executor(const StepPlan& plan, const models::Model& model, comm::World& world, const device::Optimizer& optimizer,
           int threads, const offload::IoOptions& io = {});
  ~Executor();

  // Host memory that mirrors micro-batch g of the next step: tokens, labels and positions, [tokens] each.
  struct BatchSpans {
    std::span<std::uint32_t> tokens;
    std::span<std::int32_t> labels;
    std::span<std::uint32_t> positions;
  };
  BatchSpans batch(int micro_batch);

  // Runs one step and waits for its end, but for late tasks. Throws Aborted when the run was aborted.
  device::StepResult step(const device::StepScalars& scalars, bool stop_requested);

  // Where the run generates: one step over the first `rows` tokens of batch(0), at positions [first, first + rows),
  // behind those of the calls before. Returns the logits of the last of them, [vocabulary], valid until the next call.
  std::span<const float> generate(std::size_t first, std::size_t rows);

  // After a step: the first unit whose output was not finite; -1: none.
  int first_nonfinite_unit() const;
  // Summed over the labels of this rank's micro-batches of the last step.
  const device::ExactSum& loss_sum() const;
  bool skipped() const;
  // By task, of the newest step that was issued task by task; {0, 0}: left out of it. How many
  // steps have been launched as a graph since. Late tasks have theirs in steps that time_next_step() was called before.
  std::span<const Span> spans() const { return spans_; }
  std::int64_t steps_since_spans() const { return steps_since_spans_; }
  // The next step is issued task by task and waited for to its last task, so that spans() are its own.
  void time_next_step() { time_next_step_ = true; }
  // Steps launched as a graph so far (device/graph.h). Where the device has graphs, the plan could be one and the
  // device refused to record it: what it says, else empty; steps are issued task by task then.
  std::int64_t graph_steps() const { return graph_steps_; }
  const std::string& graph_refusal() const { return graph_refusal_; }
  const Memory& measured_memory() const { return meter_.peak(); }
  // Sent by this rank so far; exact after drain().
  comm::CommBytes comm_bytes() const;
  // Read from and written to the other tiers so far.
  const IoBytes& io_bytes() const { return tasks_->moved(); }
  // How the drives of the nvme tier are read and written, and why no better way is (Swap::describe); empty: no such
  // tier.
  std::string drives() const { return storage_.swap() ? storage_.swap()->describe() : ""; }

  // Waits for what the last step left to be done, and carries out its update where the plan is a cycle: before anything
  // but the next step looks at the state, at spans() or at what was sent.
  void drain();

  // Before the first step: what products run by, where there is a choice (device/algorithm_table.h); null: none.
  void use_algorithms(std::shared_ptr<const device::AlgorithmTable> table);
  const std::shared_ptr<const device::AlgorithmTable>& algorithms() const { return algorithms_; }

  // What computes the attention of a GPU's run, and why nothing faster; empty on the CPU.
  const std::string& attention() const { return attention_; }

  Storage& storage() { return storage_; }
  const Storage& storage() const { return storage_; }
  // Recorded by a lane that reads the unit's state during the next step, once it has: the unit's update waits for it.
  device::Event& state_read(std::size_t unit) { return state_read_[unit]; }
  // What updates have waited for it, over all steps.
  double held_ms() const { return held_ms_; }

 private:
  void issue_step();
  void issue(std::size_t index, bool runs);
  template <typename Stamp>
  void wait_for_reader(device::Lane& lane, std::size_t unit, const Stamp& stamp);
  // f(), whose exception sets the run's token before it unwinds: lanes may be waiting for what is not issued any more.
  template <typename F>
  void or_abort(const F& f);
  void synchronize();
  // Whether every step could be the same work of the device alone, so that it can be recorded once.
  bool can_be_graph() const;
  // The step as one launch; false where this one has to be issued task by task.
  bool launch_graph();
  void record_graph();
  // What the host wrote for the step goes to the device before any lane's work; what it will read comes back after all.
  void send_mirrors();
  void fetch_mirrors();
  // The buffer as T where its tier's lanes see it.
  template <typename T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(storage_.view(buffer, device::DType::fp32).data);
  }
  // A device buffer as T where the host sees it.
  template <typename T>
  static T* host(const device::Mirror& mirror) {
    return reinterpret_cast<T*>(mirror.data());
  }

  const StepPlan& plan_;
  const models::Model& model_;
  int rank_;
  AbortToken& abort_;
  device::FaultWatch fault_watch_;
  Storage storage_;
  ControlBuffers buffers_;
  Lanes lanes_;
  device::Lane* late_lane_ = nullptr;  // of the late tasks; null: there are none
  std::unique_ptr<comm::Communicator> gather_, reduce_;
  std::unique_ptr<TaskRunner> tasks_;
  std::vector<device::Event> events_;      // by task
  std::vector<bool> awaited_;              // by task: some other lane waits for it
  std::vector<Span> spans_;                // by task
  std::vector<device::Event> state_read_;  // by unit
  std::vector<Span> held_;                 // by unit: its update waited for state_read
  double held_ms_ = 0;
  MemoryMeter meter_;
  struct {
    device::Mirror batch, state, losses, squares, logits;
  } mirrors_;
  device::Event sent_;                // the mirrors, at the start of a step
  std::vector<device::Event> ended_;  // by LaneId: the lane's work, at the end of a step
  std::vector<std::string> names_;    // by task
  std::shared_ptr<const device::AlgorithmTable> algorithms_;
  std::string attention_;
  bool has_pending_ = false;  // the last step's update is still to be done

  bool graph_possible_ = false, recording_ = false, draining_ = false, time_next_step_ = false, timed_ = false;
  std::int64_t steps_ = 0, graph_steps_ = 0, steps_since_spans_ = 0;
  std::optional<device::Graph> graph_;  // destroyed before the communicators whose work it holds
  IoBytes moved_by_graph_{};            // by one launch
  std::string graph_refusal_;
};

}  // namespace strata::runtime
