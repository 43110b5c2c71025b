#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/commands/plan/plan.h"
#include "launcher/screen/printable.h"
#include "runtime/forecast/simulator.h"
#include "runtime/plan/layout/stages.h"
#include "runtime/plan/proof/proof.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/trace.h"

namespace strata::launcher {
namespace {

std::size_t device_peak(const runtime::StepPlan& plan) {
  return plan.memory[static_cast<std::size_t>(runtime::Tier::device)].peak;
}

// "embedding, block 0 to block 3, block 8".
std::string units_text(const runtime::Job& job) {
  const auto& units = job.model->units;
  const auto name = [&](int unit) { return units[static_cast<std::size_t>(unit)]->name(); };
  const int head = static_cast<int>(units.size()) - 1;
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  for (const auto& [first, last] : job.plan.own.ranges) {
    const int from = std::max(first, 1), to = std::min(last, head - 1);
    if (first == 0) add(name(0));
    if (from == to) add(name(from));
    if (from < to) add(name(from) + " to " + name(to));
    if (last == head && head > 0) add(name(head));
  }
  return text;
}

void require_match(std::span<const runtime::StepPlan* const> plans) {
  if (const auto mismatch = runtime::find_mismatch(plans))
    invariant_failed(__FILE__, __LINE__, "the stages of the pipeline match", *mismatch);
}

std::vector<const runtime::StepPlan*> plans_of(const std::vector<PlannedStage>& stages) {
  std::vector<const runtime::StepPlan*> plans;
  for (const PlannedStage& stage : stages) plans.push_back(&stage.job.plan);
  return plans;
}

}  // namespace

std::vector<PlannedStage> plan_pipeline(const PlanSetup& setup) {
  std::vector<PlannedStage> stages;
  for (runtime::Job& job : runtime::jobs_of_stages(setup.workload, setup.ranks, setup.capacity))
    stages.push_back({std::move(job), std::nullopt, 0});
  const std::vector<const runtime::StepPlan*> plans = plans_of(stages);
  require_match(plans);
  if (stages[0].job.evaluation) {
    std::vector<const runtime::StepPlan*> forwards;
    for (const PlannedStage& stage : stages) forwards.push_back(&stage.job.evaluation->plan);
    require_match(forwards);
  }
  const runtime::MachineProfile profile = profile_for(setup.machine, stages[0].job, setup.ranks_per_node);
  const auto spans = runtime::simulate(plans, profile);
  for (std::size_t s = 0; s < plans.size(); ++s) stages[s].spans = spans[s];
  const double step_ms = 1e3 * runtime::makespan_s(simulated(stages));
  for (PlannedStage& stage : stages) {
    stage.idle_share = runtime::idle_share(stage.job.plan, stage.spans, step_ms);
    if (setup.machine) stage.step_ms = 1e3 * runtime::makespan_s(stage.job.plan, stage.spans);
  }
  return stages;
}

PlannedStep plan_step(const PlanSetup& setup) {
  if (setup.workload.recipe.parallel.stages > 1 && setup.machine) {
    std::vector<PlannedStage> stages = plan_pipeline(setup);
    const bool all = std::ranges::all_of(
        stages, [&](const PlannedStage& stage) { return runtime::fits(stage.job.plan, setup.capacity); });
    PlannedStage& largest = stages[stage_of(stages, std::nullopt)];
    const Forecast f = forecast(largest.job, *setup.machine, setup.ranks_per_node, simulated(stages));
    return {std::move(largest.job), all, f.step_ms, f.tokens_per_s};
  }
  std::vector<runtime::Job> jobs = runtime::jobs_of_stages(setup.workload, setup.ranks, setup.capacity);
  const bool all =
      std::ranges::all_of(jobs, [&](const runtime::Job& job) { return runtime::fits(job.plan, setup.capacity); });
  PlannedStep out{
      std::move(*std::ranges::max_element(jobs, {}, [](const runtime::Job& job) { return device_peak(job.plan); })),
      all,
      {},
      {}};
  if (setup.machine) {
    const Forecast f = forecast(out.job, *setup.machine, setup.ranks_per_node);
    out.step_ms = f.step_ms;
    out.tokens_per_s = f.tokens_per_s;
  }
  return out;
}

std::size_t slowest_of(const std::vector<PlannedStage>& stages, std::optional<int> rank) {
  if (rank) return stage_of(stages, rank);
  return static_cast<std::size_t>(std::ranges::max_element(stages, {}, &PlannedStage::step_ms) - stages.begin());
}

std::vector<runtime::SimulatedStage> simulated(const std::vector<PlannedStage>& stages) {
  std::vector<runtime::SimulatedStage> all;
  for (const PlannedStage& stage : stages) all.push_back({&stage.job.plan, stage.spans});
  return all;
}

std::size_t stage_of(const std::vector<PlannedStage>& stages, std::optional<int> rank) {
  if (rank) return static_cast<std::size_t>(stages[0].job.plan.mesh().at(*rank).stage);
  const auto peak = [](const PlannedStage& stage) { return device_peak(stage.job.plan); };
  return static_cast<std::size_t>(std::ranges::max_element(stages, {}, peak) - stages.begin());
}

int rank_shown(const runtime::Job& job, std::optional<int> asked) {
  return asked.value_or(job.plan.mesh().rank_of(0, 0, job.plan.stage));
}

std::string whose_text(const runtime::Job& job, std::optional<int> asked) {
  const bool pipeline = job.recipe.parallel.stages > 1;
  if (!pipeline && !asked) return "a rank's";
  return fmt::format("rank {}'s{}", rank_shown(job, asked), pipeline ? fmt::format(" (stage {})", job.plan.stage) : "");
}

std::vector<std::int64_t> split_of(const runtime::Job& job) {
  return runtime::blocks_of_pieces(*job.model, job.plan.pieces);
}

namespace {

// Says which split "auto" chose, or how much faster it would be than the list in parallel.split; empty if it is not.
std::string split_text(const PlanSetup& setup, const std::vector<PlannedStage>& stages) {
  runtime::Recipe recipe = setup.workload.recipe;
  if (std::exchange(recipe.parallel.split, {}).empty()) {
    const std::vector<std::int64_t> blocks = split_of(stages[0].job);
    if (blocks.empty())
      return "parallel.split = \"auto\" puts the embedding's norm into the second stage, which no list can express";
    return fmt::format("parallel.split = \"auto\" gives [{}]", fmt::join(blocks, ", "));
  }
  const runtime::Workload workload = setup.workload.with(std::move(recipe));
  const auto automatic = plan_pipeline({workload, setup.ranks, setup.capacity, setup.machine, setup.ranks_per_node});
  const double asked = runtime::makespan_s(simulated(stages)), best = runtime::makespan_s(simulated(automatic));
  if (asked <= 1.03 * best) return "";
  return fmt::format("parallel.split = \"auto\" would balance better: its step takes {:.0f}% of this one's time",
                     100 * best / asked);
}

}  // namespace

std::string pipeline_text(const PlanSetup& setup, const std::vector<PlannedStage>& stages) {
  const runtime::StepPlan& plan = stages[0].job.plan;
  std::vector<std::vector<std::string>> rows = {
      {"stage", "units", "device", "host", "nvme", "time", "idle", "to other stages"}};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const runtime::Job& job = stages[s].job;
    auto& row = rows.emplace_back();
    row = {fmt::format("{}", s), units_text(job)};
    for (const runtime::TierMemory& tier : job.plan.memory) row.push_back(tier.peak ? bytes_text(tier.peak) : "-");
    row.push_back(stages[s].step_ms ? step_time_text(*stages[s].step_ms) : "-");
    row.push_back(fmt::format("{:.0f}%", 100 * stages[s].idle_share));
    row.push_back(bytes_text(job.plan.comm_bytes.point_to_point));
  }
  std::string text = fmt::format(
      "{}\n",
      folded(fmt::format("{} of {} each; figures of one rank per stage and step (idle: share of the step's time{}; to "
                         "other stages: bytes that it sends them):",
                         counted(stages.size(), "pipeline stage"), counted(plan.mesh().data(), "rank"),
                         stages[0].step_ms ? "" : ", at nominal speeds")));
  text += table(rows);
  if (const std::string split = split_text(setup, stages); !split.empty()) text += folded(split, 2) + "\n";
  if (plan.sharded_parameters() && plan.accumulation > 1)
    text +=
        folded("each micro-batch gathers a stage's parameters again; with zero.stage = 2 they stay on the device", 2) +
        "\n";
  return text;
}

std::string pipeline_trace(const std::vector<PlannedStage>& stages) {
  std::vector<std::vector<runtime::Span>> spans;
  for (const PlannedStage& stage : stages) spans.push_back(stage.spans);
  return runtime::planned_trace(plans_of(stages), *stages[0].job.model, spans);
}

JsonArray pipeline_json(const std::vector<PlannedStage>& stages) {
  JsonArray out;
  for (const PlannedStage& stage : stages) {
    JsonArray units;
    for (const int unit : stage.job.plan.own.all())
      units.add(stage.job.model->units[static_cast<std::size_t>(unit)]->name());
    out.add(JsonObject()
                .add("units", units)
                .add("memory", JsonText{runtime::memory_json(stage.job.plan.memory, nullptr)})
                .add("step_ms", decimals(stage.step_ms, 3))
                .add("idle_share", Decimals{stage.idle_share, 4})
                .add("sent_bytes", stage.job.plan.comm_bytes.total()));
  }
  return out;
}

}  // namespace strata::launcher
