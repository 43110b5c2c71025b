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

// The evaluations between a training's steps, and what is said of them: progress with the time left, the result, which
// one is the best, and why the run ends if patience does. Nothing if the recipe asks for none. Every rank has one; job,
// world, trainer and signal outlive it.
class Evaluations {
 public:
  // prompts: of evaluation.prompts. Collective.
  Evaluations(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const StopSignal& stop,
              std::optional<runtime::Prompts> prompts);

  // Is called when one begins, and after each of its rounds and each token that it answers.
  void tell_rounds(std::function<void()> round) { round_ = std::move(round); }
  // Says, now and then in one, what was asked for beside the signal: kStop and kStopAtOnce. Of any rank.
  void ask_stop(std::function<std::uint64_t()> asked) { asked_ = std::move(asked); }

  bool due() const { return evaluation_ && evaluation_->due(); }
  // True: it is the best one so far. `reports`: null but on rank 0. Collective.
  bool run(runtime::Trainer& trainer, runtime::RunReports* reports);
  // The last one was stopped on request: it is due again when the run goes on. And without a checkpoint, as asked.
  bool stopped() const { return stopped_; }
  bool stopped_at_once() const { return at_once_; }
  bool out_of_patience() const { return evaluation_ && evaluation_->out_of_patience(); }

  // What the whole run took at most, of what its steps did; what its steps sent, of what the whole run did.
  runtime::Memory measured_with(runtime::Memory training) const;
  comm::CommBytes without(comm::CommBytes sent) const;

 private:
  bool after_round(std::int64_t step, std::uint64_t done, std::uint64_t all);

  comm::World& world_;
  const StopSignal& stop_;
  std::string metric_;
  std::int64_t patience_;
  bool stopped_ = false, at_once_ = false;
  std::function<void()> round_ = [] {};
  std::function<std::uint64_t()> asked_ = [] { return std::uint64_t{0}; };
  std::optional<runtime::PeriodicEvaluation> evaluation_;
  std::chrono::steady_clock::time_point began_, said_;
  std::set<std::string> noted_;  // each note once a run
};

}  // namespace strata::launcher
