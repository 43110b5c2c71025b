#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "launcher/commands/train/checkpoints.h"
#include "launcher/control/control.h"
#include "launcher/evaluations.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/progress.h"
#include "launcher/screen/run_text.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/run_reports.h"
#include "runtime/run/reports/trace_recorder.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// The steps of a training, and what happens between them: evaluations, checkpoints, reports, requests to stop. Every
// rank has one and does the same. Everything in Parts must outlive it.
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
  // and nothing that it began still runs.
  void run();
  // Why the run ended early, or why it failed at its end.
  const std::optional<comm::AgreedError>& ended() const { return ended_; }
  // nullopt: no step was taken.
  const std::optional<RunEnd>& end() const { return end_; }
  // Fills in the results of the steps.
  void report(runtime::Summary& summary) const;

 private:
  void begin();
  void step();
  bool is_over() const { return p_.trainer.done() || ended_ || out_of_patience_; }
  void finish();

  runtime::StepReport train_step();
  void tell(const runtime::StepReport& report);
  void evaluate();
  // Whether the run ends here on request. A step's consensus carries only requests from before it began, so the time
  // between steps needs this check.
  bool stops_between_steps();
  // Ends the run early, with a checkpoint if there is a folder for it.
  void stop_here(bool at_once = false);

  bool speaks() const { return p_.world.rank() == 0; }

  const Parts p_;
  std::optional<Progress> progress_;  // on rank 0
  std::optional<comm::AgreedError> ended_;
  std::optional<RunEnd> end_;
  bool out_of_patience_ = false;
  std::int64_t steps_ = 0;     // steps of this process
  std::vector<double> rates_;  // tokens/s of each step
  double tokens_per_s_ = 0;
  std::optional<double> timed_ms_;  // time of the newest step whose tasks were timed
  SteadyClock::time_point start_;
};

}  // namespace strata::launcher
