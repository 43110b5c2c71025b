#include "launcher/commands/train/training.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "launcher/median.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/run_text.h"

namespace strata::launcher {
namespace {

using comm::AgreedError;

// The speed of the median step, not counting the first two.
double median_tokens_per_s(std::vector<double> rates) {
  if (rates.empty()) return 0;
  if (rates.size() > 2) rates.erase(rates.begin(), rates.begin() + 2);
  return median_of(std::move(rates));
}

}  // namespace

Checkpoints::Checkpoints(const runtime::Job& job, comm::World& world) : recipe_(job.recipe.checkpoint) {
  if (recipe_.dir) folder_.emplace(*recipe_.dir, recipe_.keep, *system_, world, note);
}

void Checkpoints::open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer,
                       const runtime::Start& start, control::Control& control) {
  saved_step_ = trainer.steps_done() > 0 ? trainer.steps_done() : -1;
  if (world.rank() == 0 && !trainer.done() && recipe_.stop_after > 0 && recipe_.stop_after <= trainer.steps_done())
    note(fmt::format("checkpoint.stop_after = {} has no effect: the run resumes after step {}", recipe_.stop_after,
                     trainer.steps_done()));
  if (!folder_) return;
  folder_->pass_over(start.damaged);
  folder_->on_published(
      [&control](std::int64_t step, const std::filesystem::path& path) { control.saved(step, path); });
  writer_.emplace(job, world, trainer.executor(), *folder_, trainer.base(), trainer.data_hash(),
                  trainer.validation_hash());
}

bool Checkpoints::after(const runtime::Trainer& trainer, bool asked) {
  const std::int64_t step = trainer.steps_done();
  if (folder_ && (asked || trainer.done() || (recipe_.every > 0 && step % recipe_.every == 0))) save(trainer);
  return recipe_.stop_after == step;
}

void Checkpoints::save(const runtime::Trainer& trainer) {
  if (saved_step_ == trainer.steps_done()) return;
  saved_step_ = trainer.steps_done();
  writer_->start(trainer.progress());
  begun_(saved_step_);
}

void Checkpoints::finish() {
  if (writer_) writer_->finish();
}

std::optional<runtime::CheckpointFigures> Checkpoints::figures() const {
  if (!writer_) return std::nullopt;
  return writer_->figures();
}

Training::Training(const Parts& parts) : p_(parts) {
  if (p_.reports)
    p_.checkpoints.on_begun([&reports = *p_.reports](std::int64_t step) { reports.event("checkpoint", step); });
}

void Training::run() {
  begin();
  try {
    if (!ended_ && p_.job.recipe.training.max_steps != 0) {  // max_steps = 0 only checks the recipe
      evaluate();
      if (patience_exhausted_ && prints() && p_.trainer.progress().best)
        note(fmt::format(
            "no steps remain: evaluation.patience = {} was used up after step {}; raise it, or set it to 0, "
            "to continue",
            p_.job.recipe.evaluation.patience, p_.trainer.progress().best->newest));
    }
    while (!is_over()) step();
  } catch (const AgreedError& error) {
    ended_ = error;
  }
  finish();
}

void Training::begin() {
  start_ = SteadyClock::now();
  if (prints()) progress_.emplace(p_.job, stderr);
  if (any_rank_stops(p_.stop, p_.world)) stop_here();
}

void Training::step() {
  const runtime::StepReport report = train_step();
  record(report);
  const bool stops = report.stop && !p_.trainer.done();
  if (!stops) evaluate();
  if (ended_) return;
  if (p_.checkpoints.after(p_.trainer, report.save) || stops) stop_here(report.at_once);
}

runtime::StepReport Training::train_step() {
  runtime::Executor& executor = p_.trainer.executor();
  ++steps_;
  if (p_.trace && p_.trace->wants(p_.trainer.steps_done() + 1)) executor.time_next_step();
  const std::uint64_t requests = p_.control.requests();
  runtime::StepReport report = p_.trainer.step(requests | (p_.stop.requested() ? runtime::kStop : 0));
  if (p_.trace) p_.trace->record(report.step, executor.spans());
  if (executor.steps_since_spans() == 0) timed_ms_ = report.step_ms;
  return report;
}

void Training::record(const runtime::StepReport& report) {
  rates_.push_back(report.tokens_per_s());
  if (!end_) end_ = RunEnd{.first = report};
  end_->last = report;
  if (p_.reports) p_.reports->step(report, p_.trainer.executor().measured_memory());
  if (progress_ && !report.note.empty()) progress_->print_note(report.note);
  if (progress_) progress_->show(report);
  p_.control.stepped(report, p_.trainer.executor());
}

void Training::evaluate() {
  const bool due = p_.evaluations.due();
  if (due && stops_between_steps()) return;  // it is due again when the run resumes
  const bool best = due && p_.evaluations.run(p_.trainer, p_.reports);
  p_.control.evaluated();
  if (due && p_.evaluations.stopped()) stop_here(p_.evaluations.stopped_at_once());
  patience_exhausted_ = p_.evaluations.patience_exhausted();  // possibly in an earlier run
  // Patience does not require a checkpoint folder. Without one, the run leaves only its figures.
  if (p_.checkpoints.can_save() && (patience_exhausted_ || (best && p_.job.recipe.checkpoint.keep_best)))
    p_.checkpoints.save(p_.trainer);
  if (patience_exhausted_ && !p_.checkpoints.can_save() && prints())
    note("evaluation.patience is used up, and nothing was saved: set checkpoint.dir to keep what was trained");
  if (due && !ended_ && !patience_exhausted_) stops_between_steps();
}

bool Training::stops_between_steps() {
  if (!p_.trainer.done() && any_rank_stops(p_.stop, p_.world)) stop_here();
  return ended_.has_value();
}

void Training::stop_here(bool at_once) {
  const runtime::Recipe::Checkpoint& recipe = p_.job.recipe.checkpoint;
  const std::int64_t step = p_.trainer.steps_done();
  // Only rank 0 knows the reason, and rank 0 prints it.
  const bool asked = p_.control.stop_requested() != 0 || recipe.stop_after == step;
  const EndReason reason{asked ? EndReason::Kind::request : EndReason::Kind::signal, step};
  const std::string again = resume_command(recipe.resume);
  if (!p_.checkpoints.can_save()) {
    ended_.emplace(Exit::failed,
                   fmt::format("stopped on request after step {}; nothing was saved: set checkpoint.dir to keep what "
                               "was trained",
                               step),
                   reason);
  } else if (at_once) {
    ended_.emplace(Exit::requeue,
                   fmt::format("stopped on request after step {}, without a checkpoint, as requested: {}", step,
                               p_.checkpoints.saved_step() >= 0
                                   ? fmt::format("{} continues from the newest one", again)
                                   : "this run has written none, and the same command starts from the beginning"),
                   reason);
  } else {
    p_.checkpoints.save(p_.trainer);
    ended_.emplace(
        Exit::requeue,
        fmt::format("stopped on request after step {}; its checkpoint is written: run {} to resume", step, again),
        reason);
  }
}

void Training::finish() {
  p_.checkpoints.finish();
  progress_.reset();
  tokens_per_s_ = median_tokens_per_s(std::move(rates_));
  if (end_) {
    end_->seconds = seconds_since(start_);
    end_->median_ms = static_cast<double>(end_->last.tokens) / tokens_per_s_ * 1e3;
  }
  p_.trainer.executor().drain();
  const std::int64_t steps = p_.trainer.steps_done();
  if (!ended_ && steps > 0 && p_.trainer.progress().updates == 0)
    ended_.emplace(Exit::failed,
                   nothing_applied_text(p_.job.recipe, {steps, steps, p_.trainer.nonfinite_forwards()},
                                        p_.trainer.progress().loss_scale.scale),
                   EndReason{EndReason::Kind::overflow, steps});
}

void Training::report(runtime::Summary& summary) const {
  const runtime::Progress& progress = p_.trainer.progress();
  summary.tokens_per_s = tokens_per_s_;
  summary.timed_ms = timed_ms_;
  summary.steps = progress.step;
  summary.skipped_steps = progress.step - progress.updates;
  summary.tokens = progress.tokens;
  summary.checkpoints = p_.checkpoints.figures();
}

runtime::StageFigures Training::figures() const {
  const runtime::Executor& executor = p_.trainer.executor();
  return {.rank = p_.world.rank(),
          .planned = p_.job.plan.memory,
          .measured = p_.evaluations.measured_with(executor.measured_memory()),
          .idle_share = runtime::idle_share(p_.job.plan, executor.spans(), timed_ms_.value_or(0)),
          .comm_bytes = p_.evaluations.without(executor.comm_bytes()).per_step(steps_),
          .io_bytes = executor.io_bytes().per_step(steps_)};
}

}  // namespace strata::launcher
