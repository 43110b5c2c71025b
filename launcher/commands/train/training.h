#pragma once
// launcher/commands/train/ is `strata train`: everything from the recipe to the summary (train.cc), and the steps with
// the work between them (here).

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "launcher/control/control.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/progress.h"
#include "launcher/screen/run_text.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/plan/job.h"
#include "runtime/run/periodic_evaluation.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/run_reports.h"
#include "runtime/run/reports/trace_recorder.h"
#include "runtime/run/resume.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// The checkpoints of a training run: writes one when it is due or requested. Does nothing if the recipe names no
// folder. It is created before the trainer, so that an unusable folder is refused early. Every rank has one.
class Checkpoints {
 public:
  Checkpoints(const runtime::Job& job, comm::World& world);
  // Call this when the trainer has the state from which the run begins or resumes. Job, world, trainer and control must
  // outlive this object.
  void open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const runtime::Start& start,
            control::Control& control);

  // Sets a callback that is called whenever a checkpoint is begun.
  void on_begun(std::function<void(std::int64_t step)> begun) { begun_ = std::move(begun); }

  bool can_save() const { return writer_.has_value(); }
  // The step of the newest checkpoint that was begun; -1 if there is none.
  std::int64_t saved_step() const { return saved_step_; }

  // Call this after a step: writes a checkpoint if it is due or `asked` is true. True if the run must end here
  // (checkpoint.stop_after).
  bool after(const runtime::Trainer& trainer, bool asked);
  void save(const runtime::Trainer& trainer);
  // Waits until all checkpoints that were begun are durable.
  void finish();
  std::optional<runtime::CheckpointFigures> figures() const;

 private:
  runtime::Recipe::Checkpoint recipe_;
  std::unique_ptr<runtime::FileSystem> system_ = runtime::posix_file_system();
  std::optional<runtime::CheckpointFolder> folder_;
  std::optional<runtime::CheckpointWriter> writer_;
  std::int64_t saved_step_ = -1;
  std::function<void(std::int64_t)> begun_ = [](std::int64_t) {};
};

// The evaluations between the steps of a training run, and their messages: progress with the time left, the result,
// which evaluation is the best, and why the run ends if patience is used up. Does nothing if the recipe requests no
// evaluation. Every rank has one. Job, world, trainer and signal must outlive it.
class Evaluations {
 public:
  // prompts: from evaluation.prompts. Collective.
  Evaluations(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const StopSignal& stop,
              std::optional<runtime::Prompts> prompts);

  // Sets a callback for the beginning of an evaluation, each of its rounds, and each token that it generates.
  void on_round(std::function<void()> round) { round_ = std::move(round); }
  // Sets a source of stop requests (kStop, kStopAtOnce) in addition to the signal. It is called repeatedly during an
  // evaluation, and a request on any rank counts.
  void set_stop_source(std::function<std::uint64_t()> source) { stop_source_ = std::move(source); }

  bool due() const { return evaluation_ && evaluation_->due(); }
  // Returns whether this evaluation is the best so far. `reports`: null except on rank 0. Collective.
  bool run(runtime::Trainer& trainer, runtime::RunReports* reports);
  // Whether the last evaluation was stopped on request (it is then due again when the run resumes), and whether it was
  // stopped without a checkpoint.
  bool stopped() const { return stopped_; }
  bool stopped_at_once() const { return at_once_; }
  bool patience_exhausted() const { return evaluation_ && evaluation_->patience_exhausted(); }

  // measured_with() adds the evaluations to the memory measured in training, so that the peak is that of the whole run.
  // without() subtracts their bytes from those of the whole run, which leaves the bytes of the steps.
  runtime::Memory measured_with(runtime::Memory training) const;
  comm::CommBytes without(comm::CommBytes sent) const;

 private:
  bool after_round(std::int64_t step, std::uint64_t done, std::uint64_t all);

  comm::World& world_;
  const StopSignal& stop_;
  std::uint64_t data_ranks_;  // micro-batches per round
  std::string metric_;
  std::int64_t patience_;
  bool stopped_ = false, at_once_ = false;
  std::function<void()> round_ = [] {};
  std::function<std::uint64_t()> stop_source_ = [] { return std::uint64_t{0}; };
  std::optional<runtime::PeriodicEvaluation> evaluation_;
  std::chrono::steady_clock::time_point began_, said_;
  std::set<std::string> noted_;  // each note is printed once per run
};

// The steps of a training run, and the work between them: evaluations, checkpoints, reports, requests to stop. Every
// rank has one and makes the same calls. Everything in Parts must outlive it.
class Training {
 public:
  struct Parts {
    const runtime::Job& job;
    comm::World& world;
    const StopSignal& stop;
    runtime::Trainer& trainer;
    Checkpoints& checkpoints;
    Evaluations& evaluations;
    control::Control& control;
    runtime::RunReports* reports;   // null except on rank 0
    runtime::TraceRecorder* trace;  // null: no step is traced
  };
  explicit Training(const Parts& parts);

  // Takes steps until the last one, or until something ends the run early. When it returns, its checkpoints are durable
  // and all work that it began has ended.
  void run();
  // Why the run ended early, or why it failed at its end.
  const std::optional<comm::AgreedError>& ended() const { return ended_; }
  // nullopt if no step was taken.
  const std::optional<RunEnd>& end() const { return end_; }
  // Fills in the results of the steps in the summary.
  void report(runtime::Summary& summary) const;
  // This rank's figures, of which the summary has those of the first rank of each stage.
  runtime::StageFigures figures() const;

 private:
  void begin();
  void step();
  bool is_over() const { return p_.trainer.done() || ended_ || patience_exhausted_; }
  void finish();

  runtime::StepReport train_step();
  void record(const runtime::StepReport& report);
  void evaluate();
  // Whether the run ends here on request. This check between steps is needed because a step's consensus carries only
  // requests that were made before the step began.
  bool stops_between_steps();
  // Ends the run early, with a checkpoint if there is a folder for it.
  void stop_here(bool at_once = false);

  bool prints() const { return p_.world.rank() == 0; }

  const Parts p_;
  std::optional<Progress> progress_;  // only on rank 0
  std::optional<comm::AgreedError> ended_;
  std::optional<RunEnd> end_;
  bool patience_exhausted_ = false;
  std::int64_t steps_ = 0;     // steps of this process
  std::vector<double> rates_;  // tokens/s of each step
  double tokens_per_s_ = 0;
  std::optional<double> timed_ms_;  // the time of the newest step whose tasks were timed
  SteadyClock::time_point start_;
};

}  // namespace strata::launcher
