#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/quantity.h"
#include "launcher/commands/plan/plan.h"
#include "launcher/screen/printable.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

// How many parameters the ranks that shard state among them hold together: those of the model, of a pipeline stage, or
// of their part of each layer.
double parameters_of(const runtime::Job& job) {
  std::size_t sum = 0;
  for (std::size_t unit = 0; unit < job.model->units.size(); ++unit)
    if (job.plan.own.has(static_cast<int>(unit)))
      for (const models::Parameter& parameter : job.model->units[unit]->parameters()) sum += parameter.size();
  return static_cast<double>(sum) / job.plan.mesh().tensor;
}

// The bytes of state for this many parameters in 16 bits, as the paper counts them for Adam (Rajbhandari et al. 2020,
// figure 1): 2 for parameters, 2 for gradients, 12 for the optimizer.
double paper_bytes(const runtime::StepPlan& plan, double parameters) {
  const auto part = [&](const runtime::StatePlacement& state, double bytes) {
    return bytes / static_cast<double>(state.pieces(plan.mesh()));
  };
  const runtime::Placement& p = plan.placement;
  return (part(p.parameters, 2) + part(p.gradients, 2) + part(p.optimizer, 12)) * parameters;
}

// Plans the setup with another recipe.
ZeroStage plan_stage(runtime::Recipe recipe, const PlanSetup& setup) {
  const runtime::Workload workload = setup.workload.with(std::move(recipe));
  PlannedStep step = plan_step({workload, setup.ranks, setup.capacity, setup.machine, setup.ranks_per_node});
  return {std::move(step.job), step.fits, step.step_ms};
}

}  // namespace

std::vector<ZeroStage> plan_stages(const PlanSetup& setup) {
  std::vector<ZeroStage> out;
  for (int stage = 0; stage < 4; ++stage) {
    runtime::Recipe other = setup.workload.recipe;
    other.zero.stage = stage;
    out.push_back(plan_stage(std::move(other), setup));
  }
  return out;
}

void add_group_stages(std::vector<ZeroStage>& stages, const PlanSetup& setup) {
  using Zero = runtime::Recipe::Zero;
  const Zero& asked = setup.workload.recipe.zero;
  const bool in_groups = asked.parameters_group != runtime::kAllRanks || asked.gradients_group != runtime::kAllRanks ||
                         asked.optimizer_group != runtime::kAllRanks;
  if (in_groups || stages.empty()) return;
  const runtime::Mesh mesh = stages[0].job.plan.mesh();
  if (const int node = mesh.data_per_node(); node <= 1 || node == mesh.data()) return;
  const struct {
    int stage;
    const char* key;
    std::int64_t Zero::*group;
  } rows[] = {{1, "optimizer_group", &Zero::optimizer_group},
              {2, "optimizer_group", &Zero::optimizer_group},
              {3, "parameters_group", &Zero::parameters_group},
              {3, "optimizer_group", &Zero::optimizer_group}};
  for (const auto& row : rows) {
    runtime::Recipe other = setup.workload.recipe;
    other.zero.stage = row.stage;
    other.zero.*row.group = runtime::kRanksOfANode;
    stages.push_back(plan_stage(std::move(other), setup));
    stages.back().groups = row.key;
  }
}

void print_stages(const std::vector<ZeroStage>& stages) {
  const auto bytes = [](const runtime::StepPlan& plan, std::size_t kind) {
    std::size_t sum = 0;
    for (const runtime::TierMemory& tier : plan.memory) sum += tier.by_kind[kind];
    return bytes_text(sum);
  };
  std::vector<std::vector<std::string>> rows = {
      {"stage", "peak [0]", "fits", "params [2]", "grads [1]", "optimizer", "rest [3]", "paper", "sent", "a step"}};
  // With a single micro-batch both orders are the same.
  const bool has_orders = stages[0].job.plan.accumulation > 1;
  if (has_orders) rows[0].emplace_back("order");
  bool in_groups = false;
  for (const ZeroStage& s : stages) {
    const runtime::StepPlan& plan = s.job.plan;
    std::size_t peak = 0, rest = 0;
    for (const runtime::TierMemory& tier : plan.memory) {
      peak += tier.peak;
      for (std::size_t kind = 3; kind < runtime::kKinds; ++kind) rest += tier.by_kind[kind];
    }
    const auto paper = static_cast<std::size_t>(paper_bytes(plan, parameters_of(s.job)));
    in_groups = in_groups || !s.groups.empty();
    const char* mark = s.groups.empty() ? "" : s.groups == "parameters_group" ? " [4]" : " [5]";
    rows.push_back({fmt::format("ZeRO-{}{}", s.job.recipe.zero.stage, mark), bytes_text(peak), s.fits ? "yes" : "no",
                    bytes(plan, 0), bytes(plan, 1), bytes(plan, 2), bytes_text(rest), bytes_text(paper),
                    bytes_text(plan.comm_bytes.total()), s.step_ms ? step_time_text(*s.step_ms) : "-"});
    if (has_orders) rows.back().emplace_back(plan.vertical ? "vert." : "horiz.");
  }
  fmt::print("\n{}", table(rows));
  for (const char* text :
       {"paper: the ZeRO paper's arithmetic for Adam in 16 bits: 16 bytes per parameter, divided as each stage says. "
        "What differs here:",
        "[0] All tiers together; the table above lists them separately.",
        "[1] Gradients are summed in fp32: 4 bytes per parameter that a rank sums, rather than 2, and a micro-batch's "
        "own on top, so that a loss has the same bits on any number of ranks.",
        "[2] At stage 3 a rank's shard and the units that are gathered at that time (memory.prefetch + 1, and a tied "
        "embedding).",
        "[3] Activations, workspace and data in transit, which the paper's figures do not include."})
    fmt::print("{}\n", folded(text, text[0] == '[' ? 4 : 0));
  if (!in_groups) return;
  for (const char* text :
       {"[4] zero.parameters_group = \"node\": a node's ranks together hold the parameters.",
        "[5] zero.optimizer_group = \"node\": a node's ranks together hold everything that is sharded."})
    fmt::print("{}\n", folded(text, 4));
}

JsonArray stages_json(const std::vector<ZeroStage>& stages) {
  JsonArray out;
  for (const ZeroStage& stage : stages) {
    const runtime::StepPlan& plan = stage.job.plan;
    JsonObject row;
    row.add("stage", stage.job.recipe.zero.stage);
    if (!stage.groups.empty()) row.add("zero." + stage.groups, "node");
    out.add(row.add("order", runtime::order_name(plan))
                .add("fits", stage.fits)
                .add("memory", JsonText{runtime::memory_json(plan.memory, nullptr)})
                .add("comm_bytes", JsonText{runtime::comm_json(plan.comm_bytes)})
                .add("step_ms", decimals(stage.step_ms, 3)));
  }
  return out;
}

}  // namespace strata::launcher
