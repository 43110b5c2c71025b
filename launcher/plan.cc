#include "launcher/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "comm/communicator.h"
#include "device/gpu.h"
#include "launcher/forecast.h"
#include "launcher/outputs.h"
#include "launcher/overwrite.h"
#include "launcher/printable.h"
#include "launcher/rank/cores.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/job/seat.h"
#include "runtime/job/suggestion.h"
#include "runtime/recipe/value.h"
#include "runtime/run/report.h"
#include "runtime/run/trace.h"

namespace strata::launcher {
namespace {

// [{"zero.stage":3}, ...]: each the keys to change, with their values.
std::string nearest_json(const std::vector<runtime::Suggestion>& nearest) {
  std::string text;
  for (const runtime::Suggestion& s : nearest) {
    std::string changes;
    for (const auto& [key, value] : s.changes)
      changes += fmt::format("{}\"{}\":{}", changes.empty() ? "" : ",", key, value);
    text += (text.empty() ? "{" : ",{") + changes + "}";
  }
  return "[" + text + "]";
}

// What the recipe's folders have free where they are here: the run is another day's, so that too little is no refusal.
void print_drives(const runtime::Job& job) {
  const std::size_t needed = job.plan.memory[static_cast<std::size_t>(runtime::Tier::nvme)].peak;
  std::size_t free = 0;
  for (const auto& folder : job.recipe.memory.nvme) {
    std::error_code error;
    const auto space = std::filesystem::space(folder, error);
    if (needed == 0 || error) return;
    free += space.available;
  }
  if (needed > 0 && free < needed)
    fmt::print("nvme: memory.nvme has {} free here: too little for one rank\n", runtime::bytes_text(free));
}

// Of each kind, those that train: what the host does between steps, and for checkpoints, is not counted.
using TaskCounts = std::array<std::size_t, runtime::kTaskNames.size()>;
TaskCounts count_tasks(const runtime::StepPlan& plan) {
  TaskCounts counts{};
  for (const runtime::Task& task : plan.tasks)
    if (static_cast<std::size_t>(task.lane) < runtime::kTrainingLanes) ++counts[static_cast<std::size_t>(task.kind)];
  return counts;
}

// Of a run's ranks on one machine like this one, or like the one of the machine file: as many as it has cores or, for a
// run on GPUs, as it has of those.
int ranks_on_a_node(const PlanOptions& options, int ranks, const std::optional<runtime::Machine>& machine,
                    runtime::Seat& seat) {
  const auto found = device::find_gpus().gpus;
  const auto usable = [](const device::Gpu& gpu) { return gpu.problem.empty(); };
  const auto gpus = static_cast<int>(std::count_if(found.begin(), found.end(), usable));
  const bool on_gpus = seat.device.kind != device::Kind::cpu && gpus > 0;
  const int cores = machine ? machine->ranks * machine->threads : cores_here();
  const int most = options.ranks_per_node ? *options.ranks_per_node : on_gpus ? gpus : cores;
  const int here = std::min(ranks, most);
  if (on_gpus) seat.sharing = (here + gpus - 1) / gpus;
  return here;
}

// "8 ranks on 4 machines like this one, 2 on each, each with its part of what is free".
std::string sharing_text(const runtime::Job& job, int ranks_per_node) {
  const int machines = (job.ranks + ranks_per_node - 1) / ranks_per_node;
  const bool evenly = job.ranks % ranks_per_node == 0;
  const std::string where = machines == 1 ? "on one machine like this one"
                                          : fmt::format("on {} machines like this one, {}{} on each", machines,
                                                        evenly ? "" : "up to ", ranks_per_node);
  const auto& memory = job.recipe.memory;
  return fmt::format("{} ranks {} (--ranks-per-node), {}", job.ranks, where,
                     memory.device && memory.host   ? "as memory.device and memory.host say"
                     : memory.device || memory.host ? "each with its part of what is free, or what memory.* says"
                                                    : "each with its part of what is free");
}

void print_table(const runtime::Job& job, const runtime::Capacity& capacity, int ranks_per_node) {
  const runtime::StepPlan& plan = job.plan;
  fmt::print("{} of {} parameters on {} {}: ZeRO-{}, {}, {} of {} x {} tokens per rank and step, {}\n\n",
             job.model->family, runtime::count_text(job.model->parameters()), plan.ranks,
             plan.ranks == 1 ? "rank" : "ranks", job.recipe.zero.stage, device::name_of(plan.dtype),
             plan.accumulation == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", plan.accumulation),
             job.recipe.training.micro_batch_size, job.recipe.data.seq_len,
             plan.vertical ? "vertical order" : "horizontal order");
  if (plan.tile_bytes) fmt::print("{}\n\n", runtime::tiling_text(plan));
  fmt::print("{:<10}{:>14}{:>14}", "memory", "peak", "capacity");
  for (const auto kind : runtime::kKindNames) fmt::print("{:>14}", kind);
  fmt::print("\n");
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier) {
    const runtime::TierMemory& memory = plan.memory[tier];
    if (memory.peak == 0) continue;
    fmt::print("{:<10}{:>14}{:>14}", runtime::kTierNames[tier], runtime::bytes_text(memory.peak),
               capacity.tier[tier] == std::numeric_limits<std::size_t>::max()
                   ? "the drives'"
                   : runtime::bytes_text(capacity.tier[tier]));
    for (const std::size_t bytes : memory.by_kind) fmt::print("{:>14}", runtime::bytes_text(bytes));
    fmt::print("\n");
  }
  if (plan.ranks > 1) fmt::print("capacity: {}\n", sharing_text(job, ranks_per_node));
  print_drives(job);
  const comm::CommBytes& sent = plan.comm_bytes;
  fmt::print("\nsent per rank and step: {} (all-gather {}, all-to-all {}, consensus {})\n",
             runtime::bytes_text(sent.total()), runtime::bytes_text(sent.all_gather),
             runtime::bytes_text(sent.all_to_all), runtime::bytes_text(sent.consensus));
  const auto& [read, written] = job.plan.io_bytes;
  for (std::size_t tier = 1; tier < runtime::kTiers; ++tier)
    if (read[tier] + written[tier])
      fmt::print("moved per rank and step: {} from {}, {} to it\n", runtime::bytes_text(read[tier]),
                 runtime::kTierNames[tier], runtime::bytes_text(written[tier]));
  const TaskCounts counts = count_tasks(plan);
  fmt::print("{} tasks per step:", std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k]) fmt::print(" {} {}", counts[k], runtime::kTaskNames[k]);
  fmt::print("\n");
}

// What `plan --machine` adds.
struct Prediction {
  Forecast forecast;
  std::vector<Gain> gains;
  int measured_ranks;   // that the machine file is of
  std::string scaling;  // what was done to its speeds for this job's ranks; empty: nothing
};

Prediction predict(const PlanOptions& options, const runtime::Machine& machine, const runtime::Job& job,
                   const runtime::Capacity& capacity, int ranks_per_node) {
  Forecast of_job = forecast(job, machine, ranks_per_node);
  return {std::move(of_job), gains(options.recipe, options.sets, job, capacity, machine, ranks_per_node), machine.ranks,
          runtime::scaling_text(machine, job.ranks, ranks_per_node)};
}

void print_prediction(const Prediction& p) {
  const Forecast& f = p.forecast;
  fmt::print("\npredicted: {:.1f} ms per step, {:.0f} tokens/s\nbound by {}; on the critical path:", f.step_ms,
             f.tokens_per_s, runtime::kBoundNames[static_cast<std::size_t>(f.bound())]);
  const double all = runtime::sum_of(f.path);
  for (std::size_t b = 0; b < f.path.size(); ++b)
    if (f.path[b] >= 0.005 * all) fmt::print(" {} {:.0f}%", runtime::kBoundNames[b], f.path[b] / all * 100);
  fmt::print("\n");
  if (!p.scaling.empty()) fmt::print("{}\n", p.scaling);
  for (const Gain& gain : p.gains)
    fmt::print("faster: {} = {}: {:.0f} tokens/s{}\n", gain.key, gain.value, gain.tokens_per_s,
               gain.same_numbers ? "" : " (with other numbers)");
  fmt::print("beyond settings: {}\n", advice(f.bound()));
}

std::string prediction_json(const Prediction& p, const runtime::StepPlan& plan) {
  const Forecast& f = p.forecast;
  std::string path, faster;
  for (std::size_t b = 0; b < f.path.size(); ++b)
    path += fmt::format("{}\"{}\":{:.3f}", path.empty() ? "" : ",", runtime::kBoundNames[b], f.path[b] * 1e3);
  for (const Gain& gain : p.gains)
    faster += fmt::format("{}{{\"key\":\"{}\",\"value\":\"{}\",\"tokens_per_s\":{:.1f},\"same_numbers\":{}}}",
                          faster.empty() ? "" : ",", gain.key, gain.value, gain.tokens_per_s, gain.same_numbers);
  return fmt::format(
      ",\"step_ms\":{:.3f},\"tokens_per_s\":{:.1f},\"exposed_ms\":{},\"bound_by\":\"{}\",\"critical_path_ms\":{{{}}},"
      "\"faster\":[{}],\"measured_ranks\":{},\"scaling\":{}",
      f.step_ms, f.tokens_per_s, runtime::exposed_json(plan, f.spans, 0),
      runtime::kBoundNames[static_cast<std::size_t>(f.bound())], path, faster, p.measured_ranks,
      p.scaling.empty() ? "null" : runtime::json_string(p.scaling));
}

}  // namespace

int plan(const PlanOptions& options) {
  const int ranks = options.ranks.value_or(std::max(1, comm::launched_ranks()));
  const runtime::Recipe recipe = runtime::load_recipe(options.recipe, options.sets);
  std::vector<NamedFile> outputs, inputs = inputs_of(recipe, options.recipe);
  if (options.json) outputs.push_back({"--json", *options.json});
  if (options.trace) outputs.push_back({"--trace", *options.trace});
  if (options.machine) inputs.push_back({"--machine", *options.machine});
  require_apart(outputs, inputs);
  if (options.json) require_own({"--json", *options.json}, Content::plan, options.force);
  if (options.trace) require_own({"--trace", *options.trace}, Content::trace, options.force);
  runtime::Seat seat = runtime::planned_seat(recipe.device.kind);
  std::optional<runtime::Machine> machine;
  if (options.machine) machine = runtime::read_machine(*options.machine);
  const int per_node = ranks_on_a_node(options, ranks, machine, seat);
  const runtime::Capacity capacity = runtime::capacity_of(recipe.memory, per_node, seat);
  const runtime::Job job = runtime::make_job(recipe, ranks, capacity);
  const bool fits = runtime::fits(job.plan, capacity);
  const auto nearest = fits ? std::vector<runtime::Suggestion>{} : runtime::nearest_that_fit(job, capacity);
  std::optional<Prediction> prediction;
  if (machine) prediction = predict(options, *machine, job, capacity, per_node);
  print_table(job, capacity, per_node);
  for (const std::string& text : recipe.notes) note(text);
  if (prediction) print_prediction(*prediction);
  if (options.json) {
    const TaskCounts counts = count_tasks(job.plan);
    runtime::ReportFile file(*options.json);
    file.write(fmt::format(
        "{{\"fits\":{},\"ranks\":{},\"ranks_per_node\":{},\"parameters\":{},\"memory\":{},\"capacity_bytes\":"
        "{{\"device\":{},\"host\":{}}},\"comm_bytes\":{},\"io_bytes\":{},\"order\":\"{}\",\"tile_bytes\":{},"
        "\"tasks\":{},\"nearest\":{}{}}}\n",
        fits, ranks, per_node, job.model->parameters(), runtime::memory_json(job.plan.memory, nullptr),
        capacity[runtime::Tier::device], capacity[runtime::Tier::host], runtime::comm_json(job.plan.comm_bytes),
        runtime::io_json(job.plan.io_bytes), job.plan.vertical ? "vertical" : "horizontal", job.plan.tile_bytes,
        std::accumulate(counts.begin(), counts.end(), std::size_t{0}), nearest_json(nearest),
        prediction ? prediction_json(*prediction, job.plan) : ""));
    file.close();
  }
  if (options.trace) {
    runtime::ReportFile file(*options.trace);
    const auto spans =
        prediction ? prediction->forecast.spans : runtime::simulate(job.plan, runtime::nominal_profile(job.plan));
    file.write(runtime::planned_trace(job.plan, *job.model, spans));
    file.close();
  }
  if (fits) return static_cast<int>(Exit::done);
  complain(runtime::refusal(job, capacity, nearest), Exit::does_not_fit);
  return static_cast<int>(Exit::does_not_fit);
}

}  // namespace strata::launcher
