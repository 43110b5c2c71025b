#include "launcher/train.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "device/gpu.h"
#include "launcher/outputs.h"
#include "launcher/printable.h"
#include "launcher/progress.h"
#include "launcher/rank/agreement.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/job/algorithms.h"
#include "runtime/job/job.h"
#include "runtime/job/seat.h"
#include "runtime/run/report.h"
#include "runtime/run/resume.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;

// Asked on any rank.
bool stop_requested(const StopSignal& stop, comm::World& world) {
  const std::vector<std::string> asked = world.exchange(stop.requested() ? "stop" : "");
  return std::any_of(asked.begin(), asked.end(), [](const std::string& text) { return !text.empty(); });
}

// Files that rank 0 writes.
struct Reports {
  std::optional<runtime::ReportFile> jsonl, summary, trace;
};

std::uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

double median_tokens_per_s(std::vector<double> rates) {
  if (rates.empty()) return 0;
  if (rates.size() > 2) rates.erase(rates.begin(), rates.begin() + 2);
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

std::vector<std::uint64_t> numbers(const std::vector<std::string>& texts) {
  std::vector<std::uint64_t> out;
  for (const std::string& text : texts) out.push_back(std::stoull(text));
  return out;
}

void describe_run(const runtime::Job& job, comm::World& world, int threads, const std::string& cores) {
  const runtime::StepPlan& plan = job.plan;
  fmt::print(stderr,
             "strata: {} of {} parameters, ZeRO-{} over {} {}, {}, {} sequences of {} tokens a step, {} order, {}\n"
             "strata: {}; {} {} a rank ({}); {} on {}\n",
             job.model->family, runtime::count_text(job.model->parameters()), job.recipe.zero.stage, plan.ranks,
             plan.ranks == 1 ? "rank" : "ranks", device::name_of(job.recipe.training.precision),
             job.recipe.training.micro_batch_size * plan.accumulation * plan.ranks, job.recipe.data.seq_len,
             plan.vertical ? "vertical" : "horizontal", plan.fast ? "reduced once a step" : "reduced in order",
             world.describe(), threads, threads == 1 ? "thread" : "threads", cores,
             runtime::memory_text(plan.memory) + " a rank", runtime::describe(job.recipe.device.seat));
  for (const std::string& text : job.recipe.notes) note(text);
  if (!job.recipe.checkpoint.dir) note("nothing of this run is kept: checkpoint.dir names no folder for checkpoints");
  if (plan.tile_bytes) fmt::print(stderr, "strata: {}\n", runtime::tiling_text(plan));
}

// How drives are read and written, once for ranks that have it alike: nothing falls back silently.
void describe_drives(const runtime::Recipe& recipe, const runtime::Executor& executor, comm::World& world) {
  const std::vector<std::string> texts = world.exchange(executor.drives());
  if (world.rank() != 0) return;
  std::string folders;
  for (const auto& folder : recipe.memory.nvme) folders += (folders.empty() ? "" : ", ") + folder.string();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty() || (rank > 0 && texts[rank] == texts[0])) continue;
    fmt::print(stderr, "strata: nvme tier{} in {}: {}\n", rank > 0 ? fmt::format(" of rank {}", rank) : "", folders,
               texts[rank]);
  }
}

// Writes checkpoints when they are due; does nothing where the recipe names no folder.
class Checkpoints {
 public:
  Checkpoints(const runtime::Job& job, comm::World& world) : recipe_(job.recipe.checkpoint) {
    if (recipe_.dir) folder_.emplace(*recipe_.dir, recipe_.keep, *system_, world);
  }
  void open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer) {
    saved_step_ = trainer.steps_done() > 0 ? trainer.steps_done() : -1;
    if (folder_) writer_.emplace(job, world, trainer.executor(), *folder_);
  }
  bool can_save() const { return writer_.has_value(); }

  // After a step: writes what is due. True where the run is to end here for it.
  bool after(const runtime::Trainer& trainer) {
    const std::int64_t step = trainer.steps_done();
    if (folder_ && (trainer.done() || (recipe_.every > 0 && step % recipe_.every == 0))) save(trainer);
    return recipe_.stop_after == step;
  }
  void save(const runtime::Trainer& trainer) {
    if (saved_step_ == trainer.steps_done()) return;
    saved_step_ = trainer.steps_done();
    writer_->start(trainer.progress());
  }
  void finish() {
    if (writer_) writer_->finish();
  }
  std::optional<runtime::CheckpointFigures> figures() const {
    if (!writer_) return std::nullopt;
    return writer_->figures();
  }

 private:
  runtime::Recipe::Checkpoint recipe_;
  std::unique_ptr<runtime::FileSystem> system_ = runtime::posix_file_system();
  std::optional<runtime::CheckpointFolder> folder_;
  std::optional<runtime::CheckpointWriter> writer_;
  std::int64_t saved_step_ = -1;
};

// Ends a run early: with a checkpoint of where it stands where there is a folder for it.
AgreedError stop_here(const runtime::Trainer& trainer, Checkpoints& checkpoints) {
  const std::int64_t step = trainer.steps_done();
  if (!checkpoints.can_save())
    return {Exit::failed,
            fmt::format("stopped on request after step {}; nothing was saved: set checkpoint.dir to keep what was "
                        "trained",
                        step)};
  checkpoints.save(trainer);
  return {
      Exit::requeue,
      fmt::format("stopped on request after step {}; its checkpoint is written: run the same command to go on", step)};
}

// Steps until the last one, or until something ends the run early: what that is.
std::optional<AgreedError> train_steps(runtime::Trainer& trainer, const runtime::Job& job, Reports& reports,
                                       const StopSignal& stop, Checkpoints& checkpoints, comm::World& world,
                                       runtime::Summary& summary) {
  std::vector<double> rates;
  std::optional<AgreedError> ended;
  std::int64_t steps = 0;
  if (stop_requested(stop, world)) ended = stop_here(trainer, checkpoints);
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace(job, stderr);
  try {
    while (!trainer.done() && !ended) {
      ++steps;
      const runtime::StepReport report = trainer.step(stop.requested());
      rates.push_back(static_cast<double>(report.tokens) / report.step_ms * 1e3);
      if (reports.jsonl) reports.jsonl->write(runtime::step_line(report));
      if (progress) progress->show(report);
      if (checkpoints.after(trainer) || (report.stop && !trainer.done())) ended = stop_here(trainer, checkpoints);
    }
  } catch (const AgreedError& error) {
    ended = error;
  }
  checkpoints.finish();
  summary.tokens_per_s = median_tokens_per_s(std::move(rates));
  trainer.executor().drain();
  summary.comm_bytes = trainer.executor().comm_bytes().per_step(steps);
  summary.io_bytes = trainer.executor().io_bytes().per_step(steps);
  summary.steps = trainer.steps_done();
  summary.tokens = trainer.progress().tokens;
  summary.checkpoints = checkpoints.figures();
  return ended;
}

// From the plan to the last step.
void run(const std::optional<std::filesystem::path>& file, const runtime::Recipe& recipe, comm::World& world,
         const StopSignal& stop) {
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));
  const runtime::Job job = plan_job(recipe, agree_on_capacity(recipe, world), world);
  require_same_plan(job, world);
  const bool speaks = world.rank() == 0;
  agree(world, [&] {
    if (speaks) require_apart(reports_of(recipe), inputs_of(recipe, file));
  });
  if (speaks) describe_run(job, world, threads, share.note);

  const auto algorithms = runtime::agree_on_algorithms(job, world, note);
  // Outlives what writes its state, and is made once checkpoint.dir is known to be there.
  std::optional<runtime::Trainer> made;
  Checkpoints checkpoints(job, world);
  runtime::Summary summary{};
  summary.gpu_before = device::gpu_memory(job.plan.device);
  runtime::Trainer& trainer = made.emplace(job, world, threads, runtime::Trainer::Weights::later);
  trainer.executor().use_algorithms(algorithms);
  describe_drives(recipe, trainer.executor(), world);
  if (const std::string& attention = trainer.executor().attention(); speaks && !attention.empty())
    fmt::print(stderr, "strata: attention by {}\n", attention);
  const auto start = std::chrono::steady_clock::now();
  const auto resumed = runtime::start_or_resume(trainer, job, world, threads, note);
  world.barrier();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (speaks && resumed)
    fmt::print(stderr, "strata: goes on after step {} of {}, read in {:.2f} s\n", trainer.steps_done(),
               resumed->string(), took.count());
  else if (speaks && recipe.model.init == runtime::Init::pretrained)
    fmt::print(stderr, "strata: weights read in {:.2f} s\n", took.count());
  if (speaks && trainer.done() && resumed) note("no step is left: raise training.max_steps to go on");
  checkpoints.open(job, world, trainer);
  Reports reports;  // opened once everything else is known to be there
  agree(world, [&] {
    if (!speaks) return;
    if (recipe.report.jsonl) reports.jsonl.emplace(*recipe.report.jsonl, trainer.steps_done());
    if (recipe.report.summary) reports.summary.emplace(*recipe.report.summary);
    if (recipe.report.trace) reports.trace.emplace(*recipe.report.trace);
  });
  const std::optional<AgreedError> ended = train_steps(trainer, job, reports, stop, checkpoints, world, summary);

  runtime::Executor& executor = trainer.executor();
  summary.flops_per_token = job.model->flops_per_token(static_cast<std::size_t>(recipe.data.seq_len));
  summary.weights_hash = trainer.weights_hash();
  summary.measured = executor.measured_memory();
  summary.gpu_at_end = device::gpu_memory(job.plan.device);
  summary.peak_rss = numbers(world.exchange(std::to_string(peak_rss())));
  summary.spans.assign(executor.spans().begin(), executor.spans().end());
  summary.timed_step = trainer.steps_done() - executor.steps_since_spans();
  summary.graph_steps = executor.graph_steps();
  summary.validate_ms = executor.validate_ms();
  if (const std::string refusal = executor.graph_refusal(); speaks && !refusal.empty())
    fmt::print(stderr, "strata: steps were issued task by task, not as a graph: {}\n", refusal);
  summary.exit = static_cast<int>(ended ? ended->code() : Exit::done);
  if (reports.jsonl) reports.jsonl->close();
  if (reports.trace) {
    reports.trace->write(runtime::trace_json(job.plan, *job.model, summary.spans, world.rank()));
    reports.trace->close();
  }
  if (reports.summary) {
    reports.summary->write(runtime::summary_json(job.plan, summary));
    reports.summary->close();
  }
  world.barrier();
  if (ended) throw AgreedError(*ended);
  if (speaks && recipe.checkpoint.dir && summary.checkpoints && summary.checkpoints->written > 0)
    note(fmt::format("done after step {}; the newest checkpoint in {} is of it", summary.steps,
                     recipe.checkpoint.dir->string()));
}

}  // namespace

int train(const TrainOptions& options) {
  // From the start: mpirun tells the survivors of a lost rank to stop, and they have to say why first.
  const StopSignal stop;
  return run_as_rank(options.recipe, options.sets, [&](comm::World& world) {
    run(options.recipe, read_recipe(options.recipe, options.sets, world), world, stop);
  });
}

}  // namespace strata::launcher
