#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "launcher/commands/plan/plan.h"
#include "launcher/screen/printable.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

using Kind = runtime::Recompute::Kind;

constexpr Kind kRecomputed[] = {Kind::none, Kind::sqrt, Kind::block};

std::vector<runtime::Recompute> recomputations_of(const runtime::Recipe& recipe) {
  std::vector<runtime::Recompute> out;
  for (const Kind kind : kRecomputed)
    if (kind != Kind::none || recipe.zero.activations == runtime::Tier::device) out.push_back({kind, {}});
  if (recipe.training.recompute.kind == Kind::list) out.push_back(recipe.training.recompute);
  return out;
}

std::string text_of(const runtime::Recompute& recompute) {
  if (recompute.kind == Kind::list) return fmt::format("[{}]", fmt::join(recompute.blocks, ","));
  return std::string(name_of(recompute.kind));
}

// Shortens the text to the width of a column.
std::string cell_of(const runtime::Recompute& recompute) {
  constexpr std::size_t kWidest = 16;
  const std::string text = text_of(recompute);
  return text.size() <= kWidest ? text : fmt::format("{} blocks", recompute.blocks.size());
}

}  // namespace

std::vector<PlannedSetting> plan_settings(const PlanSetup& setup) {
  const runtime::Recipe& recipe = setup.workload.recipe;
  std::vector<PlannedSetting> out;
  for (int stage = 0; stage < 4; ++stage) {
    if (setup.ranks == 1 && stage != recipe.zero.stage) continue;
    for (const device::DType precision : {device::DType::fp32, device::DType::bf16, device::DType::fp16})
      for (const runtime::Recompute& recompute : recomputations_of(recipe)) {
        runtime::Recipe other = recipe;
        other.zero.stage = stage;
        other.training.precision = precision;
        other.training.recompute = recompute;
        const runtime::Workload workload = setup.workload.with(std::move(other));
        const PlannedStep step =
            plan_step({workload, setup.ranks, setup.capacity, setup.machine, setup.ranks_per_node});
        out.push_back({stage, precision, recompute, step.job.plan.vertical, step.fits, step.job.plan.memory,
                       step.step_ms, step.tokens_per_s});
      }
  }
  return out;
}

std::string settings_text(const std::vector<PlannedSetting>& settings) {
  const auto any = [&](std::size_t tier) {
    return std::any_of(settings.begin(), settings.end(), [&](const auto& row) { return row.memory[tier].peak > 0; });
  };
  const bool timed = std::any_of(settings.begin(), settings.end(), [](const auto& row) { return row.step_ms; });
  std::vector<std::vector<std::string>> rows = {{"stage", "precision", "recompute", "order"}};
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
    if (any(tier)) rows[0].emplace_back(runtime::kTierNames[tier]);
  rows[0].emplace_back("fits");
  if (timed) rows[0].insert(rows[0].end(), {"a step", "speed"});
  for (const PlannedSetting& setting : settings) {
    auto& row = rows.emplace_back();
    row = {fmt::format("ZeRO-{}", setting.stage), std::string(device::name_of(setting.precision)),
           cell_of(setting.recompute), setting.vertical ? "vertical" : "horizontal"};
    for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
      if (any(tier)) row.push_back(bytes_text(setting.memory[tier].peak));
    row.emplace_back(setting.fits ? "yes" : "no");
    if (timed) {
      row.push_back(setting.step_ms ? step_time_text(*setting.step_ms) : "-");
      row.push_back(setting.tokens_per_s ? tokens_rate_text(*setting.tokens_per_s) : "-");
    }
  }
  return table(rows) +
         folded(
             "A rank's peak in each tier, planned and not run. Losses are the same in all rows of one "
             "precision.") +
         "\n";
}

JsonArray settings_json(const std::vector<PlannedSetting>& settings) {
  JsonArray out;
  for (const PlannedSetting& row : settings) {
    const std::string recompute = text_of(row.recompute);
    const bool is_list = row.recompute.kind == Kind::list;
    out.add(JsonObject()
                .add("stage", row.stage)
                .add("precision", device::name_of(row.precision))
                .add("recompute", JsonText{is_list ? recompute : json_string(recompute)})
                .add("order", row.vertical ? "vertical" : "horizontal")
                .add("fits", row.fits)
                .add("memory", JsonText{runtime::memory_json(row.memory, nullptr)})
                .add("step_ms", decimals(row.step_ms, 3))
                .add("tokens_per_s", decimals(row.tokens_per_s, 1)));
  }
  return out;
}

}  // namespace strata::launcher
