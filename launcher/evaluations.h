#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/run/periodic_evaluation.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::launcher {

// The evaluations between a training's steps and their messages: progress with the time left, the result, which
// evaluation is the best, and why the run ends if patience is used up. Does nothing if the recipe asks for no
// evaluation. Every rank has one; job, world, trainer and signal must outlive it.
class Evaluations {
 public:
  // prompts: those of evaluation.prompts. Collective.
  Evaluations(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const StopSignal& stop,
              std::optional<runtime::Prompts> prompts);

  // Sets a callback for the beginning of an evaluation, each of its rounds, and each token that it generates.
  void tell_rounds(std::function<void()> round) { round_ = std::move(round); }
  // Sets a source of stop requests (kStop, kStopAtOnce) in addition to the signal. It is asked now and then during an
  // evaluation, and a request on any rank counts.
  void ask_stop(std::function<std::uint64_t()> asked) { asked_ = std::move(asked); }

  bool due() const { return evaluation_ && evaluation_->due(); }
  // Returns whether this evaluation is the best so far. `reports`: null except on rank 0. Collective.
  bool run(runtime::Trainer& trainer, runtime::RunReports* reports);
  // Whether the last evaluation was stopped on request (it is due again when the run resumes), and whether without a
  // checkpoint.
  bool stopped() const { return stopped_; }
  bool stopped_at_once() const { return at_once_; }
  bool out_of_patience() const { return evaluation_ && evaluation_->out_of_patience(); }

  // The peak memory of the whole run, given that of its steps; and the bytes that its steps sent, given those of the
  // whole run.
  runtime::Memory measured_with(runtime::Memory training) const;
  comm::CommBytes without(comm::CommBytes sent) const;

 private:
  bool after_round(std::int64_t step, std::uint64_t done, std::uint64_t all);

  comm::World& world_;
  const StopSignal& stop_;
  std::uint64_t data_ranks_;  // micro-batches of a round
  std::string metric_;
  std::int64_t patience_;
  bool stopped_ = false, at_once_ = false;
  std::function<void()> round_ = [] {};
  std::function<std::uint64_t()> asked_ = [] { return std::uint64_t{0}; };
  std::optional<runtime::PeriodicEvaluation> evaluation_;
  std::chrono::steady_clock::time_point began_, said_;
  std::set<std::string> noted_;  // each note is printed once per run
};

}  // namespace strata::launcher
