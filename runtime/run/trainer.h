#pragma once
// runtime/run/ is a run over its steps: training (here), evaluation (evaluator.h), generation (generator.h, sampler.h).
// What changes from step to step is here too: schedule.h, loss_scaler.h, and where a run resumes (resume.h). report.h
// and trace_recorder.h write what it says of itself. What a step is, the plan says; what a run is for, launcher/.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/note.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batches.h"
#include "runtime/data/open_data.h"
#include "runtime/execute/executor.h"
#include "runtime/job/make_job.h"
#include "runtime/run/index_memory.h"
#include "runtime/run/loss_scaler.h"
#include "runtime/weights/weights.h"
#include "runtime/weights/weights_hash.h"

namespace strata::runtime {

// What a step may be asked to end with: the sum over the ranks tells all of them. Any rank may ask for a stop; rank 0
// alone for a checkpoint, or for a stop without one.
inline constexpr std::uint64_t kStop = 1, kCheckpoint = std::uint64_t{1} << 40, kStopAtOnce = std::uint64_t{1} << 41;

// What a step says of itself: a line of report.jsonl.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0, grad_norm = 0, learning_rate = 0, loss_scale = 1;
  bool skipped = false;
  std::uint64_t tokens = 0;  // of the step, over all ranks
  double step_ms = 0;
  bool stop = false;             // some rank was asked to stop after this step
  std::uint64_t disk_bytes = 0;  // read from and written to the nvme tier by this rank
  double time = 0;               // of its end, seconds since the epoch
  double epoch = 0;              // of the data: how often the run has gone over it by then
  std::uint64_t labels = 0;      // of the step that count, over all ranks
  bool at_once = false;          // the stop is to be without a checkpoint
  bool save = false;             // a checkpoint of this step was asked for
  std::string remark = {};       // fp16: a sentence about the run's first forward that was not finite

  double tokens_per_s() const { return static_cast<double>(tokens) / step_ms * 1e3; }
};

// Takes a run from its first step to its last: data, schedule, loss scale, one executor. Every rank has one and calls
// step() in step; all ranks get the same report. Job and world outlive it.
class Trainer {
 public:
  // `weights`: whether to start with the recipe's initial weights; else load_initial_weights() or a checkpoint and
  // restore() come before the first step. `io`: how drives are used, if not as the recipe says. `opened`: what was
  // opened of the data before the plan was made.
  enum class Weights : std::uint8_t { initial, later };
  Trainer(const Job& job, comm::World& world, int threads, Weights weights = Weights::initial,
          const std::optional<offload::IoOptions>& io = std::nullopt, OpenedData opened = {});

  // Collective. note: as of first_weights().
  void load_initial_weights(
      int threads, const Note& note = [](const std::string&) {}, const Advance& advance = {});
  // Of an adapter's base alone, whose BaseHash has to be this; before a checkpoint without it is restored. Collective.
  void load_base(const std::string& hash, int threads, const Note& note, const Advance& advance);
  // The BaseHash of an adapter's base; empty: it was not read by itself.
  const std::string& base() const { return base_; }
  // Where the run stands, between two steps, without the tensors; and resuming from there.
  const Progress& progress() const { return progress_; }
  void restore(const Progress& progress);
  void set_best(const Best& best) { progress_.best = best; }

  std::int64_t steps_done() const { return progress_.step; }
  // The newest step that was run: one more than steps_done() if its numbers ended the run before the update.
  std::int64_t newest_step() const { return newest_step_; }
  bool done() const { return progress_.step >= job_.recipe.training.max_steps.value_or(0); }

  // Runs the next step. In bf16 and fp32 a loss or norm that is not finite throws AgreedError on all ranks, before the
  // update, naming the step and the first unit whose output was not finite. In fp16 the step is skipped; what throws is
  // the third loss in a row that is not finite, and a loss scale that has halved down to nothing.
  StepReport step(std::uint64_t requests);
  // fp16: how many of this process's steps were skipped because the forward was not finite.
  std::int64_t nonfinite_forwards() const { return nonfinite_forwards_.all; }

  Executor& executor() { return executor_; }
  // For who evaluates between its steps, once: null if the recipe asks for no evaluation.
  std::unique_ptr<Sequences> take_validation() { return std::move(validation_); }
  // What it trains on; null: nothing, with no step to take.
  const Batches* batches() const { return batches_.get(); }
  std::string weights_hash(const Advance& advance = {}) {
    return runtime::weights_hash(executor_, job_.plan, world_, advance);
  }
  std::string base_hash(const Advance& advance = {}) {
    return runtime::base_hash(executor_, job_.plan, world_, advance);
  }

 private:
  device::StepScalars scalars_of_next_step() const;
  std::uint64_t micro_batches_per_step() const { return job_.plan.micro_batches(); }
  void load_batches();
  [[noreturn]] void report_nonfinite(const device::StepResult& result);
  // Counts a forward in fp16 that was not finite, and throws if there were kNonfiniteForwards in a row. Returns what to
  // tell the user: something at the first one only.
  std::string take_nonfinite_forward();
  [[noreturn]] void report_exhausted_scale();
  std::string first_nonfinite();

  const Job& job_;
  comm::World& world_;
  Executor executor_;
  IndexMemory index_memory_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Sequences> validation_;
  LossScaler scaler_;
  std::string base_;
  Progress progress_;
  std::int64_t newest_step_ = 0;
  std::uint64_t labels_ = 0;  // of the step about to run, over all ranks

  // A batch may overflow once; weights that overflow do so in every step.
  static constexpr std::int64_t kNonfiniteForwards = 3;
  struct {
    std::int64_t all = 0, in_a_row = 0;
  } nonfinite_forwards_;
};

using comm::agree;
using comm::AgreedError;

}  // namespace strata::runtime
