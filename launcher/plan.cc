#include "launcher/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "comm/communicator.h"
#include "launcher/forecast.h"
#include "launcher/outputs.h"
#include "launcher/printable.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/job.h"
#include "runtime/job/seat.h"
#include "runtime/job/suggestion.h"
#include "runtime/recipe/value.h"
#include "runtime/run/report.h"

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

void print_table(const runtime::Job& job, const runtime::Capacity& capacity) {
  const runtime::StepPlan& plan = job.plan;
  fmt::print("{} of {} parameters on {} {}: ZeRO-{}, {}, {} of {} x {} tokens a rank and step, {}\n\n",
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
  if (plan.ranks > 1)
    fmt::print("capacity: of a machine like this one for each rank{}\n",
               job.recipe.memory.device ? ", or what memory.* says" : "; ranks that share one have their part of it");
  print_drives(job);
  const comm::CommBytes& sent = plan.comm_bytes;
  fmt::print("\nsent by a rank in a step: {} (all-gather {}, all-to-all {}, consensus {})\n",
             runtime::bytes_text(sent.total()), runtime::bytes_text(sent.all_gather),
             runtime::bytes_text(sent.all_to_all), runtime::bytes_text(sent.consensus));
  const auto& [read, written] = job.plan.io_bytes;
  for (std::size_t tier = 1; tier < runtime::kTiers; ++tier)
    if (read[tier] + written[tier])
      fmt::print("moved by a rank in a step: {} from {}, {} to it\n", runtime::bytes_text(read[tier]),
                 runtime::kTierNames[tier], runtime::bytes_text(written[tier]));
  const TaskCounts counts = count_tasks(plan);
  fmt::print("{} tasks a step:", std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k]) fmt::print(" {} {}", counts[k], runtime::kTaskNames[k]);
  fmt::print("\n");
}

// What `plan --machine` adds.
struct Prediction {
  Forecast forecast;
  std::vector<Gain> gains;
};

std::optional<Prediction> predict(const PlanOptions& options, const runtime::Job& job,
                                  const runtime::Capacity& capacity) {
  if (!options.machine) return std::nullopt;
  const runtime::Machine machine = runtime::read_machine(*options.machine);
  Forecast of_job = forecast(job, machine);
  return Prediction{std::move(of_job), gains(options.recipe, options.sets, job, capacity, machine)};
}

void print_prediction(const Prediction& p) {
  const Forecast& f = p.forecast;
  fmt::print("\npredicted: {:.1f} ms a step, {:.0f} tokens/s\nbound by {}; on the critical path:", f.step_ms,
             f.tokens_per_s, runtime::kBoundNames[static_cast<std::size_t>(f.bound())]);
  const double all = runtime::sum_of(f.path);
  for (std::size_t b = 0; b < f.path.size(); ++b)
    if (f.path[b] >= 0.005 * all) fmt::print(" {} {:.0f}%", runtime::kBoundNames[b], f.path[b] / all * 100);
  fmt::print("\n");
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
      "\"faster\":[{}]",
      f.step_ms, f.tokens_per_s, runtime::exposed_json(plan, f.spans, 0),
      runtime::kBoundNames[static_cast<std::size_t>(f.bound())], path, faster);
}

}  // namespace

int plan(const PlanOptions& options) {
  const int ranks = options.ranks.value_or(std::max(1, comm::launched_ranks()));
  runtime::Recipe recipe = runtime::load_recipe(options.recipe, options.sets);
  std::vector<NamedFile> outputs, inputs = inputs_of(recipe, options.recipe);
  if (options.json) outputs.push_back({"--json", *options.json});
  if (options.trace) outputs.push_back({"--trace", *options.trace});
  if (options.machine) inputs.push_back({"--machine", *options.machine});
  require_apart(outputs, inputs);
  recipe.device.seat = runtime::planned_seat(recipe.device.kind);
  const runtime::Capacity capacity = runtime::capacity_of(recipe.memory, 1, recipe.device.seat);
  const runtime::Job job = runtime::make_job(recipe, ranks, capacity);
  const bool fits = runtime::fits(job.plan, capacity);
  const auto nearest = fits ? std::vector<runtime::Suggestion>{} : runtime::nearest_that_fit(job, capacity);
  const std::optional<Prediction> prediction = predict(options, job, capacity);
  print_table(job, capacity);
  for (const std::string& text : recipe.notes) note(text);
  if (prediction) print_prediction(*prediction);
  if (options.json) {
    const TaskCounts counts = count_tasks(job.plan);
    runtime::ReportFile file(*options.json);
    file.write(fmt::format(
        "{{\"fits\":{},\"ranks\":{},\"parameters\":{},\"memory\":{},\"capacity_bytes\":"
        "{{\"device\":{},\"host\":{}}},\"comm_bytes\":{},\"io_bytes\":{},\"order\":\"{}\",\"tile_bytes\":{},"
        "\"tasks\":{},\"nearest\":{}{}}}\n",
        fits, ranks, job.model->parameters(), runtime::memory_json(job.plan.memory, nullptr),
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
    file.write(runtime::trace_json(job.plan, *job.model, spans, 0));
    file.close();
  }
  if (fits) return static_cast<int>(Exit::done);
  fmt::print(stderr, "strata: {}\n", runtime::refusal(job, capacity, nearest));
  return static_cast<int>(Exit::does_not_fit);
}

}  // namespace strata::launcher
