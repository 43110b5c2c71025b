#include <numeric>

#include "base/json/json_writer.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/plan/plan.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/job/search/suggestion.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

// [{"zero.stage":3}, ...]: for each suggestion, the keys to change and their values.
JsonArray nearest_json(const std::vector<runtime::Suggestion>& nearest) {
  JsonArray out;
  for (const runtime::Suggestion& s : nearest) {
    JsonObject changes;
    for (const auto& [key, value] : s.changes) changes.add(key, JsonText{value});
    out.add(changes);
  }
  return out;
}

}  // namespace

TaskCounts count_tasks(const runtime::StepPlan& plan) {
  TaskCounts counts{};
  for (const runtime::Task& task : plan.tasks)
    if (static_cast<std::size_t>(task.lane) < runtime::kTrainingLanes) ++counts[static_cast<std::size_t>(task.kind)];
  return counts;
}

void write_plan_json(const PlanOptions& options, const PlanSetup& setup, const PlanFindings& found) {
  const auto& [job, fits, nearest, prediction, slowest, pipeline, stages, settings, largest] = found;
  runtime::ReportFile file(*options.json, "--json");
  const TaskCounts counts = count_tasks(job.plan);
  JsonObject json;
  json.add("fits", fits)
      .add("ranks", setup.ranks)
      .add("ranks_per_node", setup.ranks_per_node)
      .add("mesh", JsonText{runtime::mesh_json(job.plan.mesh())})
      .add("parameters", job.model->parameters())
      .add("micro_batch_size", job.recipe.training.micro_batch_size)
      .add("memory", JsonText{runtime::memory_json(job.plan.memory, nullptr)})
      .add("memory_rank", rank_shown(job, options.rank))
      .add("capacity_bytes", JsonObject()
                                 .add("device", setup.capacity[runtime::Tier::device])
                                 .add("host", setup.capacity[runtime::Tier::host]))
      .add("comm_bytes", JsonText{runtime::comm_json(job.plan.comm_bytes)})
      .add("io_bytes", JsonText{runtime::io_json(job.plan.io_bytes)})
      .add("order", runtime::order_name(job.plan))
      .add("tile_bytes", job.plan.tile_bytes)
      .add("tasks", std::accumulate(counts.begin(), counts.end(), std::size_t{0}))
      .add("nearest", nearest_json(nearest));
  if (prediction) json.add_all(prediction_json(*prediction, slowest));
  std::vector<PlannedStage> one = pipeline.empty() ? plan_pipeline(setup) : std::vector<PlannedStage>{};
  if (prediction && !one.empty()) one[0].step_ms = prediction->forecast.step_ms;
  // Before there were pipelines, the rows of --stages had this name.
  const bool of_zero = options.stages && pipeline.empty();
  json.add("stages", of_zero ? stages_json(stages) : pipeline_json(pipeline.empty() ? one : pipeline));
  if (!pipeline.empty()) json.add("split", JsonArray().add_all(split_of(job)));
  if (options.stages) json.add("zero_stages", stages_json(stages));
  if (options.table) json.add("table", settings_json(settings));
  if (largest) json.add("max_batch", JsonText{max_batch_json(*largest)});
  file.write(json.text() + "\n");
  file.close();
}

}  // namespace strata::launcher
