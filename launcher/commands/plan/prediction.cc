#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/quantity.h"
#include "launcher/commands/plan/plan.h"
#include "launcher/screen/printable.h"
#include "runtime/forecast/simulator.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/trace.h"

namespace strata::launcher {
namespace {

// "parallel.stages = 4 with training.gradient_accumulation_steps = 8".
std::string changes_text(const Speedup& speedup) {
  std::string text, before;
  for (const auto& [key, value] : speedup.changes) {
    text += fmt::format("{}{} = {}", before, key, value);
    before = before.empty() ? " with " : ", ";
  }
  return text;
}

// Returns advice other than settings that fit.
std::string advice_for(const Forecast& f, const std::vector<Speedup>& speedups, const runtime::StepPlan& plan,
                       bool gpu) {
  std::string text = advice(f.bound(), plan, gpu);
  constexpr double kMuch = 0.15;
  const double waits = f.path[static_cast<std::size_t>(runtime::Bound::stages)];
  if (f.bound() != runtime::Bound::stages && waits > kMuch * runtime::sum_of(f.path))
    text += "; against waits for other stages: " + advice(runtime::Bound::stages, plan, gpu);
  if (const auto more = std::ranges::find(speedups, true, &Speedup::needs_more_memory); more != speedups.end())
    text += fmt::format("; or more memory for {}, with which a rank needs {}: {}", changes_text(*more),
                        runtime::memory_text(more->memory), tokens_rate_text(more->tokens_per_s));
  return text;
}

}  // namespace

Prediction predict(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                   const runtime::Machine& machine, const runtime::Job& job, const runtime::Capacity& capacity,
                   int ranks_per_node, std::span<const runtime::SimulatedStage> stages) {
  Forecast of_job = forecast(job, machine, ranks_per_node, stages);
  auto [faster, untried] = find_speedups(recipe, sets, job, of_job.tokens_per_s, capacity, machine, ranks_per_node);
  std::string advice = advice_for(of_job, faster, job.plan, machine.gpu);
  std::erase_if(faster, [](const Speedup& speedup) { return speedup.needs_more_memory; });
  return {std::move(of_job),
          std::move(faster),
          std::move(untried),
          std::move(advice),
          machine.ranks,
          machine.measured,
          machine.spread,
          runtime::scaling_text(machine, job.ranks, ranks_per_node,
                                job.plan.io_bytes.of(runtime::Tier::nvme) ? job.recipe.memory.nvme.size() : 0)};
}

std::string step_trace(const runtime::Job& job, const std::optional<Prediction>& prediction) {
  const runtime::StepPlan* const plans[] = {&job.plan};
  const std::vector<runtime::Span> spans[] = {
      prediction ? prediction->forecast.spans : runtime::simulate(job.plan, runtime::nominal_profile(job.plan))};
  return runtime::planned_trace(plans, *job.model, spans);
}

void print_prediction(const Prediction& p) {
  const Forecast& f = p.forecast;
  fmt::print("\npredicted: {} per step, {}{}\n", step_time_text(f.step_ms), tokens_rate_text(f.tokens_per_s),
             !p.measured ? " (computed from data sheets, not measured)"
             : p.spread  ? fmt::format(" (from speeds measured with a spread of +-{:.0f}%)", 100 * *p.spread)
                         : "");
  std::string bound =
      fmt::format("bound by {}; on the critical path:", runtime::kBoundWords[static_cast<std::size_t>(f.bound())]);
  bool first = true;
  const double all = runtime::sum_of(f.path);
  for (std::size_t b = 0; b < f.path.size(); ++b)
    if (f.path[b] >= 0.005 * all)
      bound += fmt::format("{} {} {:.0f}%", std::exchange(first, false) ? "" : ",", runtime::kBoundWords[b],
                           f.path[b] / all * 100);
  fmt::print("{}\n", folded(bound, 2));
  if (!p.scaling.empty()) fmt::print("{}\n", folded(p.scaling, 2));
  for (const Speedup& speedup : p.speedups)
    fmt::print("{}\n",
               folded(fmt::format("faster: {}: {}{}", changes_text(speedup), tokens_rate_text(speedup.tokens_per_s),
                                  speedup.same_numbers ? "" : " (losses change)"),
                      2));
  if (!p.untried.empty())
    fmt::print("{}\n", folded(fmt::format("not tried, because it takes long to plan: other values of {}",
                                          fmt::join(p.untried, ", ")),
                              2));
  fmt::print("{}\n", folded("to go faster: " + p.advice, 2));
}

JsonObject prediction_json(const Prediction& p, const runtime::StepPlan& plan) {
  const Forecast& f = p.forecast;
  JsonObject path;
  for (std::size_t b = 0; b < f.path.size(); ++b) path.add(runtime::kBoundNames[b], Decimals{f.path[b] * 1e3, 3});
  JsonArray faster;
  for (const Speedup& speedup : p.speedups) {
    JsonObject with;
    for (const auto& [key, value] : std::span(speedup.changes).subspan(1)) with.add(key, value);
    faster.add(JsonObject()
                   .add("key", speedup.changes[0].first)
                   .add("value", speedup.changes[0].second)
                   .add("with", with)
                   .add("tokens_per_s", Decimals{speedup.tokens_per_s, 1})
                   .add("same_numbers", speedup.same_numbers));
  }
  return JsonObject()
      .add("step_ms", Decimals{f.step_ms, 3})
      .add("tokens_per_s", Decimals{f.tokens_per_s, 1})
      .add("exposed_ms", JsonText{runtime::exposed_json(plan, f.spans, 0)})
      .add("bound_by", runtime::kBoundNames[static_cast<std::size_t>(f.bound())])
      .add("critical_path_ms", path)
      .add("faster", faster)
      .add("measured_ranks", p.measured_ranks)
      .add("spread", decimals(p.spread, 3))
      .add("scaling", p.scaling.empty() ? std::nullopt : std::optional(p.scaling));
}

}  // namespace strata::launcher
