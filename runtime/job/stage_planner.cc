#include "runtime/job/stage_planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "models/classes.h"
#include "runtime/job/choices.h"
#include "runtime/job/requirements.h"
#include "runtime/job/score_memory.h"
#include "runtime/plan/passes.h"
#include "runtime/planner/planner.h"

namespace strata::runtime {
namespace {

// Bytes per write: large enough for a drive's full speed, small enough to stay in the cache.
constexpr std::size_t kCheckpointStaging = std::size_t{4} << 20;

PlanRequest request_of(const Recipe& recipe, const DataFacts& data, const models::Model& model,
                       const models::RunShape& shape, const Mesh& mesh, bool vertical, std::size_t tile_bytes,
                       const std::vector<UnitRange>& pieces, int stage) {
  PlanRequest request{&model, shape, mesh, shape.training ? recipe.accumulation_steps(mesh.world) : 1,
                      placement_of(recipe.zero, mesh.data_per_node())};
  request.forward_only = !shape.training;
  request.fast = recipe.training.reduce == Reduce::fast;
  request.reduce_group = static_cast<int>(recipe.training.reduce_group);
  request.vertical = vertical;
  request.prefetch = static_cast<int>(recipe.memory.prefetch);
  if (mesh.stages > 1) request.pieces = pieces;
  request.stage = stage;
  request.schedule = recipe.parallel.schedule;
  request.segments = segments_of(recipe.training.recompute, model);
  if (mesh.stages > 1) request.segments = within(request.segments, units_of_stage(pieces, mesh.stages, stage));
  request.algorithm = recipe.optimizer.algorithm();
  request.moments = recipe.optimizer.moment_format();
  request.tile_bytes = tile_bytes;
  request.read_ahead = recipe.zero.optimizer == Tier::nvme && recipe.memory.prefetch > 0;
  if (shape.training && recipe.checkpoint.dir) request.checkpoint_staging = kCheckpointStaging;
  // A training plan also includes the data index of the evaluations that run between its steps.
  if (shape.training)
    request.index_bytes = data.index_bytes + data.validation_index_bytes;
  else if (shape.cache == 0)
    request.index_bytes = data.validation_index_bytes;
  if (shape.cache == 0) request.mean_squares = data.mean_squares;
  return request;
}

// Adds the memory for a classifier's scores to a plan of forward passes.
void add_scores(const DataFacts& data, const models::Config& config, const models::Model& model, PlanRequest& request) {
  if (!request.forward_only || request.shape.cache > 0 || model.loss_unit().classes() == 0) return;
  const ScoreMemory scores(models::read_classes(config, model.objective), data.scored_rows, request.mesh.world,
                           model.loss_rows());
  request.score_bytes = scores.bytes;
  request.chunk_bytes = scores.chunk_bytes;
}

std::size_t parts_of(const models::Model& model) {
  std::size_t parts = 0;
  for (const auto& unit : model.units) parts += unit->parts().size();
  return parts;
}

// Returns the useful values of PlanRequest::tile_bytes, largest first: each tiles one more size of unit.
std::vector<std::size_t> tile_thresholds(const models::Model& model, const StepPlan& plan) {
  std::set<std::size_t, std::greater<>> sizes;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    if (model.units[unit]->parts().size() > 1)
      sizes.insert(plan.layout.units[unit].gathered_bytes(format_of(plan.dtype)));
  std::vector<std::size_t> thresholds(sizes.begin(), sizes.end());
  if (thresholds.empty()) return thresholds;
  thresholds.erase(thresholds.begin());
  thresholds.push_back(*sizes.rbegin() - 1);
  return thresholds;
}

}  // namespace

BetweenSteps::BetweenSteps(const models::Config& config, const DataFacts& data, const models::RunShape& shape)
    : config_(config), data_(data), model_(models::make_model(config, shape)), shape_(shape) {}

PlanRequest BetweenSteps::request(const Recipe& recipe, const StepPlan& training) const {
  PlanRequest request = request_of(recipe, data_, *model_, shape_, training.mesh(), false, training.tile_bytes,
                                   training.pieces, training.stage);
  request.memory_of = &training;
  request.index_bytes = 0;
  add_scores(data_, config_, *model_, request);
  return request;
}

void BetweenSteps::add_memory(const Recipe& recipe, StepPlan& training) const {
  const StepPlan own = draft_plan(request(recipe, training));
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    training.memory[tier].peak = std::max(training.memory[tier].peak, own.memory[tier].peak);
}

std::unique_ptr<Job> BetweenSteps::job(const Job& training) && {
  StepPlan own = make_plan(request(training.recipe, training.plan));
  return std::make_unique<Job>(Job{{training}, training.ranks, std::move(model_), std::move(own)});
}

std::int64_t StagePlanner::micro_batches(const Recipe& recipe) const {
  return shape.training ? recipe.accumulation_steps(mesh.world) : 1;
}

StepPlan StagePlanner::in_order(const Stage& stage, std::size_t tile_bytes, bool vertical) const {
  PlanRequest request =
      request_of(stage.recipe, workload.data, model, shape, mesh, vertical, tile_bytes, stage.pieces, stage.number);
  add_scores(workload.data, config, model, request);
  // Only the batch takes memory for all micro-batches of a step together.
  if (shape.training) request.batches = workload.recipe.accumulation_steps(mesh.world);
  const auto make = [&] {
    StepPlan plan = draft_plan(request);
    for (const auto* planned : {&evaluation, &generation})
      if (*planned) (*planned)->add_memory(stage.recipe, plan);
    return plan;
  };
  StepPlan plan = make();
  if (!std::exchange(request.read_ahead, false) || fits(plan, capacity)) return plan;
  return make();
}

StepPlan StagePlanner::in_tiles(const Stage& stage, std::size_t tile_bytes) const {
  StepPlan plan = in_order(stage, tile_bytes, stage.recipe.memory.order == AccumulationOrder::vertical);
  if (!both_orders) return plan;
  StepPlan vertical = in_order(stage, tile_bytes, true);
  if (fits(plan, capacity) && fits(vertical, capacity)) {  // both orders are simulated
    derive_waits(plan);
    derive_waits(vertical);
  }
  const auto device_limit = [&] {
    std::size_t limit = std::numeric_limits<std::size_t>::max();
    for (const Recipe& other : with_less_moved(stage.recipe, mesh.world))
      for (const bool order : {false, true}) {
        const StepPlan moved_less = in_order({other, stage.number, stage.pieces}, tile_bytes, order);
        limit = std::min(limit, moved_less.memory[0].peak);
      }
    return limit;
  };
  return takes_vertical({plan, fits(plan, capacity)}, {vertical, fits(vertical, capacity)}, device_limit) ? vertical
                                                                                                          : plan;
}

StepPlan StagePlanner::plan(const Recipe& recipe, int stage, const std::vector<UnitRange>& pieces) const {
  const Stage asked{recipe, stage, pieces};
  StepPlan plan = in_tiles(asked, recipe.memory.tile.value_or(0));
  const bool may_tile = plan.sharded_parameters() || plan.placement.parameters.tier != Tier::device;
  if (!recipe.memory.tile && !fits(plan, capacity) && may_tile &&
      plannable(recipe, parts_of(model) / 4, micro_batches(recipe)))
    // If no tiling fits, keeps the smallest peak that was found: the step needs that much, and the refusal reports it.
    for (const std::size_t tile_bytes : tile_thresholds(model, plan)) {
      StepPlan tiled = in_tiles(asked, tile_bytes);
      if (tiled.memory[0].peak < plan.memory[0].peak) plan = std::move(tiled);
      if (fits(plan, capacity)) break;
    }
  const bool has_waits = std::ranges::any_of(plan.tasks, [](const Task& task) { return !task.waits.empty(); });
  if (!has_waits && (all_waits || fits(plan, capacity))) derive_waits(plan);
  return plan;
}

StepPlan StagePlanner::whole(const Recipe& recipe) const {
  return draft_plan(request_of(recipe, workload.data, model, shape, mesh.in_one_stage(), false, 0, {}, 0));
}

}  // namespace strata::runtime
