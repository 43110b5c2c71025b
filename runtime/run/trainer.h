#pragma once
// runtime/run/ executes runs: training (here), evaluation (evaluator.h), generation (generation/). schedule.h has the
// values that change from step to step, resume.h the start of a run, reports/ its reports. The plan defines a step;
// launcher/ decides which kind of run to execute.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/progress.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batches.h"
#include "runtime/data/open_data.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/job.h"
#include "runtime/run/index_memory.h"
#include "runtime/run/schedule.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// Requests for the end of a step. All ranks see the sum over the ranks. Any rank may request a stop, but only rank 0 a
// checkpoint, or a stop without one.
inline constexpr std::uint64_t kStop = 1, kCheckpoint = std::uint64_t{1} << 40, kStopAtOnce = std::uint64_t{1} << 41;

// The report of a step: a line of report.jsonl.
struct StepReport {
  std::int64_t step = 0;  // the step's number, from 1
  double loss = 0, grad_norm = 0, learning_rate = 0, loss_scale = 1;
  bool skipped = false;
  std::uint64_t tokens = 0;  // the step's tokens, over all ranks
  double step_ms = 0;
  bool stop = false;             // some rank was asked to stop after this step
  std::uint64_t disk_bytes = 0;  // read from and written to the nvme tier by this rank
  double time = 0;               // the step's end, in seconds since the epoch
  double epoch = 0;              // how often the run has gone over its data by then
  std::uint64_t labels = 0;      // the step's labels that count, over all ranks
  bool at_once = false;          // stop without a checkpoint
  bool save = false;             // a checkpoint of this step was requested
  std::string note = {};         // fp16: a sentence about the run's first non-finite forward

  double tokens_per_s() const { return static_cast<double>(tokens) / step_ms * 1e3; }
};

// Trains from the first step to the last: data, schedule, loss scale, and one executor. Every rank has one and calls
// step() at the same time; all ranks get the same report. Job and world must outlive it.
class Trainer {
 public:
  // Before the first step, the caller calls load_initial_weights(), or loads a checkpoint and calls restore(). `io`:
  // how drives are used, if not as the recipe says. `opened`: the data that was opened before the plan was made.
  Trainer(const Job& job, comm::World& world, int threads, const std::optional<offload::IoOptions>& io = std::nullopt,
          OpenedData opened = {});

  // note: as for first_weights(). Collective.
  void load_initial_weights(
      int threads, const Note& note = [](const std::string&) {}, const Advance& advance = {});
  // Loads only an adapter's base, whose BaseHash must be `hash`, before a checkpoint without the base is restored.
  // Collective.
  void load_base(const std::string& hash, int threads, const Note& note, const Advance& advance);
  // The BaseHash of an adapter's base; empty if it was not read separately.
  const std::string& base() const { return base_; }
  // XXH3-64 (16 hex digits) of the contents of data.train's files, independent of their paths; empty if there are none.
  const std::string& data_hash() const { return data_hash_; }
  // Likewise of data.validation's files.
  const std::string& validation_hash() const { return validation_hash_; }
  // The run's state between two steps, without the tensors. restore() resumes from it.
  const Progress& progress() const { return progress_; }
  void restore(const Progress& progress);
  void set_best(const Best& best) { progress_.best = best; }

  std::int64_t steps_done() const { return progress_.step; }
  // The newest step that was run: steps_done() + 1 if non-finite numbers ended the run before the update.
  std::int64_t newest_step() const { return newest_step_; }
  bool done() const { return progress_.step >= job_.recipe.training.max_steps.value_or(0); }

  // Runs the next step. In bf16 and fp32 a loss or norm that is not finite throws AgreedError on all ranks before the
  // update, naming the step and the first unit with non-finite output. In fp16 such a step is skipped; the third
  // non-finite loss in a row throws, and so does a loss scale that has been halved to nothing.
  StepReport step(std::uint64_t requests);
  // fp16: the steps of this process that were skipped because the forward was not finite.
  std::int64_t nonfinite_forwards() const { return nonfinite_forwards_.all; }

  Executor& executor() { return executor_; }
  // For the code that evaluates between steps; call it once. Null if the recipe requests no evaluation.
  std::unique_ptr<Sequences> take_validation() { return std::move(validation_); }
  // The training batches; null if there are no steps to take.
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
  // Counts an fp16 forward that was not finite, and throws after kNonfiniteForwards in a row. Returns a message for the
  // user at the first one only.
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
  std::string base_, data_hash_, validation_hash_;
  Progress progress_;
  std::int64_t newest_step_ = 0;
  std::uint64_t labels_ = 0;  // the next step's labels, over all ranks

  // A single batch may overflow once; weights that overflow do so in every step.
  static constexpr std::int64_t kNonfiniteForwards = 3;
  struct {
    std::int64_t all = 0, in_a_row = 0;
  } nonfinite_forwards_;
};

using comm::agree;
using comm::AgreedError;

}  // namespace strata::runtime
