#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/quantity.h"
#include "comm/exchange_values.h"
#include "launcher/commands/train/training.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {
namespace {

// The number of rounds between two checks of whether a rank was asked to stop.
constexpr std::uint64_t kRoundsPerCheck = 16;
// An evaluation shorter than this prints only its result.
constexpr std::chrono::seconds kStatusInterval{10};

// The metrics that fit on one line, including `asked`, by which evaluations are compared.
std::string metrics_text(const runtime::EvaluationReport& report, std::string_view asked) {
  constexpr std::string_view kShown[] = {"accuracy", "f1", "matthews", "roc_auc", "pearson", "mse"};
  std::string out;
  for (const auto& [name, value] : report.metrics) {
    const std::string_view plain = std::string_view(name).substr(std::string_view("eval_").size());
    if (plain == "perplexity") return "perplexity " + value_text(value, 2);
    if (name == asked || std::find(std::begin(kShown), std::end(kShown), plain) != std::end(kShown))
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", plain, value_text(value, 4));
  }
  return out;
}

// Why the run ends: evaluation.patience is used up.
std::string end_text(const std::optional<runtime::Best>& best, std::int64_t without_improvement) {
  if (!best)
    return without_improvement == 1
               ? "this evaluation produced no value for evaluation.metric"
               : fmt::format("none of {} evaluations produced a value for evaluation.metric", without_improvement);
  return fmt::format("{} no better than that after step {}",
                     without_improvement == 1 ? "this evaluation was"
                                              : fmt::format("{} evaluations in a row were", without_improvement),
                     best->step);
}

}  // namespace

Evaluations::Evaluations(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const StopSignal& stop,
                         std::optional<runtime::Prompts> prompts)
    : world_(world),
      stop_(stop),
      data_ranks_(static_cast<std::uint64_t>(job.plan.mesh().data())),
      metric_(job.recipe.evaluation.metric),
      patience_(job.recipe.evaluation.patience) {
  if (job.evaluation) evaluation_.emplace(job, world, trainer, std::move(prompts));
}

bool Evaluations::run(runtime::Trainer& trainer, runtime::RunReports* reports) {
  began_ = said_ = std::chrono::steady_clock::now();
  const std::int64_t step = trainer.steps_done();
  round_();
  const auto report =
      evaluation_->run([&](std::uint64_t done, std::uint64_t all) { return after_round(step, done, all); }, round_);
  stopped_ = !report;
  if (!report) return false;
  if (reports) reports->evaluation(*report);
  if (world_.rank() == 0) {
    const std::optional<runtime::Best>& best = trainer.progress().best;
    const bool words = report->metrics.empty() || report->metrics.front().first == "eval_perplexity";
    const std::string_view what = words ? "tokens" : "labels";
    say("evaluation after step {}: loss {}, {}, {} {}, {:.0f} {}/s; {}", report->step, value_text(report->loss, 4),
        metrics_text(*report, metric_), report->tokens, what, report->tokens_per_s, what,
        report->best ? "the best so far"
        : best       ? fmt::format("the best is {} after step {}", value_text(best->value, 4), best->step)
        : patience_ > 0
            ? fmt::format("evaluation.metric has no value, so it is not better ({} of {}, evaluation.patience)",
                          evaluation_->without_improvement(), patience_)
            : "evaluation.metric has no value yet");
    for (const std::string& text : report->notes)
      if (noted_.insert(text).second) note(text);
    if (evaluation_->patience_exhausted())
      say("ends after step {}: {} (evaluation.patience)", report->step,
          end_text(best, evaluation_->without_improvement()));
  }
  return report->best;
}

bool Evaluations::after_round(std::int64_t step, std::uint64_t done, std::uint64_t all) {
  round_();
  const auto now = std::chrono::steady_clock::now();
  if (world_.rank() == 0 && done < all && now - said_ > kStatusInterval) {
    const std::chrono::duration<double> took = now - began_;
    said_ = now;
    say("evaluation after step {}: {} of {} micro-batches, {:.0f} s left", step, done * data_ranks_, all * data_ranks_,
        took.count() / static_cast<double>(done) * static_cast<double>(all - done));
  }
  if (done % kRoundsPerCheck != 0 || done == all) return true;
  const std::uint64_t own = stop_source_() | (stop_.requested() ? runtime::kStop : 0);
  std::uint64_t any = 0;
  for (const std::uint64_t asked : comm::exchange_value(world_, own)) any |= asked;
  at_once_ = (any & runtime::kStopAtOnce) != 0;
  return any == 0;
}

runtime::Memory Evaluations::measured_with(runtime::Memory training) const {
  if (!evaluation_) return training;
  const runtime::Memory own = evaluation_->measured_memory();
  for (std::size_t tier = 0; tier < own.size(); ++tier)
    training[tier].peak = std::max(training[tier].peak, own[tier].peak);
  return training;
}

comm::CommBytes Evaluations::without(comm::CommBytes sent) const {
  if (!evaluation_) return sent;
  return sent.since(evaluation_->comm_bytes());
}

}  // namespace strata::launcher
