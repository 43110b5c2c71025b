#include "launcher/commands/plan/stages.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "launcher/forecast.h"
#include "launcher/screen/folded.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

// Bytes of the state of a model of so many parameters in 16 bits, as the paper counts them for Adam (Rajbhandari et al.
// 2020, figure 1): 2 for parameters, 2 for gradients, 12 for the optimizer.
double paper_bytes(int stage, double parameters, double ranks) {
  const double p = stage == 3 ? 2 / ranks : 2, g = stage >= 2 ? 2 / ranks : 2, o = stage >= 1 ? 12 / ranks : 12;
  return (p + g + o) * parameters;
}

}  // namespace

std::vector<Stage> plan_stages(const runtime::Workload& workload, int ranks, const runtime::Capacity& capacity,
                               const std::optional<runtime::Machine>& machine, int ranks_per_node) {
  std::vector<Stage> out;
  for (int stage = 0; stage < 4; ++stage) {
    runtime::Workload other = workload;
    other.recipe.zero.stage = stage;
    Stage& of_stage = out.emplace_back(Stage{runtime::make_job(other, ranks, capacity), false, {}});
    of_stage.fits = runtime::fits(of_stage.job.plan, capacity);
    if (machine) of_stage.step_ms = forecast(of_stage.job, *machine, ranks_per_node).step_ms;
  }
  return out;
}

void print_stages(const std::vector<Stage>& stages) {
  const auto bytes = [](const runtime::StepPlan& plan, std::size_t kind) {
    std::size_t sum = 0;
    for (const runtime::TierMemory& tier : plan.memory) sum += tier.by_kind[kind];
    return bytes_text(sum);
  };
  std::vector<std::vector<std::string>> rows = {
      {"stage", "peak [0]", "fits", "params [2]", "grads [1]", "optimizer", "rest [3]", "paper", "sent", "a step"}};
  // Of one micro-batch both orders are the same.
  const bool has_orders = stages[0].job.plan.accumulation > 1;
  if (has_orders) rows[0].emplace_back("order");
  for (int stage = 0; stage < 4; ++stage) {
    const Stage& s = stages[static_cast<std::size_t>(stage)];
    const runtime::StepPlan& plan = s.job.plan;
    std::size_t peak = 0, rest = 0;
    for (const runtime::TierMemory& tier : plan.memory) {
      peak += tier.peak;
      for (std::size_t kind = 3; kind < runtime::kKinds; ++kind) rest += tier.by_kind[kind];
    }
    const auto paper = static_cast<std::size_t>(
        paper_bytes(stage, static_cast<double>(s.job.model->parameters()), static_cast<double>(s.job.ranks)));
    rows.push_back({fmt::format("ZeRO-{}", stage), bytes_text(peak), s.fits ? "yes" : "no", bytes(plan, 0),
                    bytes(plan, 1), bytes(plan, 2), bytes_text(rest), bytes_text(paper),
                    bytes_text(plan.comm_bytes.total()), s.step_ms ? step_time_text(*s.step_ms) : "-"});
    if (has_orders) rows.back().emplace_back(plan.vertical ? "vert." : "horiz.");
  }
  fmt::print("\n{}", table(rows));
  for (const char* text :
       {"paper: the ZeRO paper's arithmetic for Adam in 16 bits: 16 bytes per parameter, shared out by stage. "
        "Different here:",
        "[0] Of all tiers together; the table above has them apart.",
        "[1] Gradients are summed in fp32: 4 bytes per parameter that a rank sums, rather than 2, and a micro-batch's "
        "own on top, so that a loss has the same bits on any number of ranks.",
        "[2] At stage 3 a rank's shard and the units that are gathered at the time (memory.prefetch + 1, and a tied "
        "embedding).",
        "[3] Activations, workspace and what is on its way, of which the paper's figures count nothing."})
    fmt::print("{}\n", folded(text, text[0] == '[' ? 4 : 0));
}

JsonArray stages_json(const std::vector<Stage>& stages) {
  JsonArray out;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const runtime::StepPlan& plan = stages[i].job.plan;
    out.add(JsonObject()
                .add("stage", i)
                .add("order", runtime::order_name(plan))
                .add("fits", stages[i].fits)
                .add("memory", JsonText{runtime::memory_json(plan.memory, nullptr)})
                .add("comm_bytes", JsonText{runtime::comm_json(plan.comm_bytes)})
                .add("step_ms", decimals(stages[i].step_ms, 3)));
  }
  return out;
}

}  // namespace strata::launcher
