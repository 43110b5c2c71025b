#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "comm/exchange_values.h"
#include "device/gpu.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/train/training.h"
#include "launcher/control/control.h"
#include "launcher/forecast.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/planned_run.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/report/report.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "launcher/screen/run_text.h"
#include "runtime/data/data_facts.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/job/search/algorithms.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/run_reports.h"
#include "runtime/run/reports/trace_recorder.h"
#include "runtime/run/resume.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;

std::uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

// Prints how drives are read and written, once for all ranks that do it alike, because nothing falls back silently.
void describe_drives(const runtime::Recipe& recipe, const runtime::Executor& executor, comm::World& world) {
  const std::vector<std::string> texts = world.exchange(executor.drives());
  if (world.rank() != 0) return;
  std::string folders;
  for (const auto& folder : recipe.memory.nvme) folders += (folders.empty() ? "" : ", ") + folder.string();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty() || (rank > 0 && texts[rank] == texts[0])) continue;
    say("nvme tier{} in {}: {}", rank > 0 ? fmt::format(" of rank {}", rank) : "", folders, texts[rank]);
  }
}

// Shifts spans so that the step begins at 0.
std::vector<runtime::Span> from_begin(const runtime::StepPlan& plan, std::vector<runtime::Span> spans) {
  const std::int64_t begin = runtime::extent_of(plan, spans).begin;
  for (runtime::Span& span : spans)
    if (span.end != 0) span = {span.begin - begin, span.end - begin};
  return spans;
}

// Writes the plan and the simulated step for `strata report`.
void write_plan(const runtime::Job& job, const runtime::Capacity& capacity,
                const std::optional<runtime::Machine>& machine, int ranks_per_node) {
  const runtime::MachineProfile profile = profile_for(machine, job, ranks_per_node);
  AtomicFile file(*job.recipe.report.dir / runtime::kPlanReport);
  file.write(plan_data(job, capacity, profile, runtime::simulate(job.plan, profile),
                       speeds_text(machine.has_value(), machine && machine->measured)));
  file.commit();
}

// Closes the report's trace. `reports` is null if another rank writes it.
void write_trace(runtime::RunReports* reports, const runtime::TraceRecorder& trace, const runtime::Job& job,
                 const runtime::Capacity& capacity, comm::World& world) {
  std::vector<runtime::Job> later;
  if (reports) later = runtime::jobs_of_later_stages(job, capacity);
  std::vector<const runtime::StepPlan*> stages = {&job.plan};
  for (const runtime::Job& stage : later) stages.push_back(&stage.plan);
  const int traced = runtime::write_trace(reports ? &*reports->trace : nullptr, trace, stages, *job.model, world);
  if (!reports) return;
  reports->trace->close();
  const int count = job.plan.mesh().stages, all = world.size() / count;
  if (traced < all)
    note(fmt::format("report.trace holds ranks 0 to {} of {}{}: more would make it too large to open", traced - 1, all,
                     count > 1 ? " of each stage" : ""));
}

// Reads report.machine, and refuses reports that would replace an input, a checkpoint, or a file that is no report.
// Rank 0 does both; the machine is nullopt on the others. Collective.
std::optional<runtime::Machine> check_outputs(const TrainOptions& options, const runtime::Job& job,
                                              comm::World& world) {
  const runtime::Recipe& recipe = job.recipe;
  std::optional<runtime::Machine> machine;
  agree(world, [&] {
    if (world.rank() != 0) return;
    if (recipe.report.machine) {
      machine = runtime::read_machine(*recipe.report.machine);
      (void)runtime::profile_of(*machine, job, world.node_size());  // reports missing figures early
    }
    require_apart(reports_of(recipe), inputs_of(job.complete_recipe(), options.recipe));
    require_outside_checkpoints(report_folders(recipe), recipe);
    require_outside_checkpoints(reports_of(recipe), recipe);
    require_own_reports(recipe, options.force);
  });
  return machine;
}

// Fills in what is known at the end of a run, apart from the results of its steps (Training::report). Collective.
void fill_summary(runtime::Summary& summary, const runtime::Job& job, comm::World& world, runtime::Trainer& trainer,
                  const Training& training, control::Control& control, const std::optional<runtime::Machine>& machine) {
  const runtime::Recipe& recipe = job.recipe;
  runtime::Executor& executor = trainer.executor();
  summary.flops_per_token = job.model->flops_per_token(job.plan.tokens);
  summary.trained_parameters = job.model->trained_parameters();
  {
    Activity activity("hashing weights", Activity::Unit::bytes, world.rank() == 0);
    summary.weights_hash = trainer.weights_hash(activity.advance());
    if (job.plan.layout.adapted) summary.base_hash = trainer.base_hash(activity.advance());
  }
  summary.best = trainer.progress().best;
  summary.metric = recipe.evaluation.metric;
  summary.gpu_at_end = device::gpu_memory(job.plan.device);
  summary.peak_rss = comm::exchange_value(world, peak_rss());
  summary.compute_ms = comm::exchange_value(world, control.compute_ms());
  if (std::none_of(summary.compute_ms.begin(), summary.compute_ms.end(), [](double ms) { return ms > 0; }))
    summary.compute_ms.clear();
  summary.spans.assign(executor.spans().begin(), executor.spans().end());
  const runtime::MachineProfile profile = profile_for(machine, job, world.node_size());
  summary.stages = runtime::figures_of_stages(training.figures(), job.plan.mesh(), world);
  // The run waited for all tasks of that step, including an update that usually only the next step waits for.
  const auto ended_last = std::ranges::max_element(summary.spans, {}, &runtime::Span::end);
  summary.path = runtime::critical_path(job.plan, profile, from_begin(job.plan, summary.spans),
                                        static_cast<int>(ended_last - summary.spans.begin()));
  summary.timed_step = trainer.newest_step() - executor.steps_since_spans();
  summary.graph_steps = executor.graph_steps();
  summary.validate_ms = executor.validate_ms();
  if (trainer.batches())
    summary.data = runtime::data_json(*trainer.batches(), recipe, trainer.progress().next_micro_batch);
  summary.exit = static_cast<int>(training.ended() ? training.ended()->code() : Exit::done);
}

// Runs from the plan to the last step.
void run(const TrainOptions& options, const runtime::LoadedRecipe& loaded, comm::World& world, const StopSignal& stop) {
  const runtime::Recipe& asked = loaded.recipe;
  require_data(asked, true, world);
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  control::Control control(asked, world, note);
  control.enter(runtime::Phase::planning);
  PlannedRun planned = plan_run(asked, world);
  const runtime::Job& job = planned.job;
  const runtime::Recipe& recipe = job.recipe;
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));
  const bool prints = world.rank() == 0;
  const std::optional<runtime::Machine> machine = check_outputs(options, job, world);
  // Prompts are read before anything is written.
  std::optional<runtime::Prompts> prompts;
  if (job.generation) prompts = runtime::read_prompts(job, world);
  const std::string ranks_threads = threads_text(share, threads, world);
  const std::string oversubscription = oversubscription_text(share, recipe.device.threads, world);
  if (prints) describe_run(job, loaded.notes, planned.rank_device, world, ranks_threads);
  if (prints && !oversubscription.empty()) note(oversubscription);
  if (prints && prompts) print_notes(prompts->notes);
  control.planned(job, world);

  const auto algorithms = runtime::agree_on_algorithms(job, world, note);
  // Declared before `checkpoints`, which writes its state, so that it outlives them. It is created once checkpoint.dir
  // is known to exist.
  std::optional<runtime::Trainer> made;
  Checkpoints checkpoints(job, world);
  control.enter(runtime::Phase::hashing);
  runtime::Summary summary{};
  summary.gpu_before = device::gpu_memory(job.plan.device);
  runtime::Trainer& trainer = made.emplace(job, world, threads, std::nullopt, std::move(planned.data));
  trainer.executor().use_algorithms(algorithms);
  describe_drives(recipe, trainer.executor(), world);
  if (const std::string& attention = trainer.executor().attention(); prints && !attention.empty())
    say("attention by {}", attention);
  control.enter(runtime::Phase::loading);
  const auto start = std::chrono::steady_clock::now();
  std::optional<Activity> activity;
  activity.emplace("reading weights and state", Activity::Unit::bytes, prints);
  const runtime::Start found = runtime::start_or_resume(trainer, job, world, threads, note, activity->advance());
  activity.reset();
  const auto& resumed = found.from;
  world.barrier();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (prints && resumed)
    say("resumes after step {} of {}, read in {:.2f} s", trainer.steps_done(), resumed->string(), took.count());
  else if (prints && recipe.model.init == runtime::Init::pretrained)
    say("weights read in {:.2f} s", took.count());
  if (!job.evaluation && runtime::will_evaluate(recipe, {trainer.steps_done(), true}))
    throw AgreedError(Exit::failed, fmt::format("a checkpoint newer than {} was damaged or removed while the run was "
                                                "planned from it: run the same command again",
                                                resumed ? resumed->string() : "the beginning"));
  if (prints) describe_data(job, trainer);
  if (prints && trainer.done() && resumed && trainer.progress().updates > 0)
    note("no steps remain: raise training.max_steps to continue");
  checkpoints.open(job, world, trainer, found, control);
  std::optional<runtime::TraceRecorder> trace;
  if (auto steps = runtime::agree_on_traced_steps(recipe, world))
    agree(world, [&] {
      trace.emplace(job.plan, std::move(*steps), trainer.steps_done(), recipe.training.max_steps.value_or(0));
    });
  Evaluations evaluations(job, world, trainer, stop, std::move(prompts));
  evaluations.on_round([&control] { control.evaluated_round(); });
  evaluations.set_stop_source([&control] { return control.take_stop(); });
  std::optional<runtime::RunReports> reports;  // opened last, so that a refused run changes no report
  agree(world, [&] {
    if (!prints) return;
    std::optional<runtime::KeptLines> kept;
    if (resumed) kept = {trainer.steps_done(), !evaluations.due()};
    reports.emplace(job.complete_recipe(), kept);
    if (recipe.report.dir) write_plan(job, planned.capacity, machine, world.node_size());
    reports->event(resumed ? "resume" : "start", trainer.steps_done(), {{"ranks", std::to_string(world.size())}});
  });
  if (prints && recipe.evaluation.prompts && !recipe.report.jsonl)
    note("the answers to evaluation.prompts are not kept: set report.jsonl or report.dir");
  if (recipe.checkpoint.dir && !control.write_address(*recipe.checkpoint.dir))
    note("control.json cannot be written to checkpoint.dir: strata ctl and top need the socket's own path");
  control.train(trainer);
  Training training({job, world, stop, trainer, checkpoints, evaluations, control, reports ? &*reports : nullptr,
                     trace ? &*trace : nullptr});
  training.run();
  training.report(summary);
  const std::optional<AgreedError>& ended = training.ended();
  const std::optional<RunEnd>& end = training.end();
  control.enter(runtime::Phase::writing);

  fill_summary(summary, job, world, trainer, training, control, machine);
  if (const std::string refusal = trainer.executor().graph_refusal(); prints && !refusal.empty())
    say("steps were issued task by task, not as a graph: {}", refusal);
  if (reports) {
    reports->event(ended ? "stop" : "end", summary.steps, {{"exit", std::to_string(summary.exit)}});
    reports->close();
  }
  if (trace) {
    trace->record_newest(summary.timed_step, summary.spans);
    write_trace(reports ? &*reports : nullptr, *trace, job, planned.capacity, world);
    if (const std::string missing = trace->missing(); prints && !missing.empty()) note(missing);
  }
  if (reports && reports->summary) {
    reports->summary->write(runtime::summary_json(job.plan, *job.model, summary));
    reports->summary->close();
  }
  world.barrier();
  if (prints && !ended && end) {
    note(fmt::format("done after step {}{}", summary.steps,
                     recipe.checkpoint.dir ? "; its checkpoint is the newest" : ""));
    if (summary.skipped_steps > 0)
      note(skipped_text({summary.steps, summary.skipped_steps, trainer.nonfinite_forwards()},
                        trainer.progress().loss_scale.scale));
    describe_end(typed_recipe(options.recipe, options.sets), job, summary, *end, machine, world.node_size());
  }
  if (ended) throw AgreedError(*ended);
}

}  // namespace

int train(const TrainOptions& options) {
  // Installed first: after a rank is lost, mpirun signals the survivors to stop, but they must first print why.
  const StopSignal stop;
  runtime::Mesh mesh;
  return run_as_rank(
      options.recipe, options.sets,
      [&](comm::World& world) {
        const runtime::LoadedRecipe loaded = read_recipe(options.recipe, options.sets, world);
        const runtime::Recipe::Parallel& parallel = loaded.recipe.parallel;
        mesh = {world.size(), {}, 0, parallel.tensor, parallel.stages};
        run(options, loaded, world, stop);
      },
      [&mesh](int rank) { return mesh.name_of(rank); });
}

}  // namespace strata::launcher
