#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"
#include "runtime/data/data_facts.h"
#include "runtime/job/capacity.h"
#include "runtime/plan/job.h"
#include "runtime/plan/layout/mesh.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Work that runs between training steps and in their memory: an evaluation, or answers to prompts. The description and
// the facts must outlive it.
class BetweenSteps {
 public:
  BetweenSteps(const models::Config& config, const DataFacts& data, const models::RunShape& shape);
  // Raises the training plan's peaks to what both need.
  void add_memory(const Recipe& recipe, StepPlan& training) const;
  // The job of this work, whose buffers lie in the memory of the training job's plan.
  std::unique_ptr<Job> job(const Job& training) &&;

 private:
  PlanRequest request(const Recipe& recipe, const StepPlan& training) const;

  const models::Config& config_;
  const DataFacts& data_;
  std::unique_ptr<models::Model> model_;
  models::RunShape shape_;
};

// Plans a model's step, a pipeline stage at a time, with the workload's recipe or one that differs from it in the
// number of micro-batches.
struct StagePlanner {
  const Workload& workload;
  const models::Config& config;  // the workload's
  const models::Model& model;    // with `shape`
  const models::RunShape& shape;
  const Mesh& mesh;
  const Capacity& capacity;
  const std::optional<BetweenSteps>& evaluation;
  const std::optional<BetweenSteps>& generation;
  bool both_orders;  // plans both orders and takes one (takes_vertical)
  bool all_waits;    // derives the waits even of a plan that does not fit

  // The plan of a stage of the split `pieces`, in tiles if it does not fit otherwise.
  StepPlan plan(const Recipe& recipe, int stage, const std::vector<UnitRange>& pieces) const;
  // A draft of the plan without pipeline stages, for the times of the model's units.
  StepPlan whole(const Recipe& recipe) const;

 private:
  struct Stage {
    const Recipe& recipe;
    int number;
    const std::vector<UnitRange>& pieces;
  };
  StepPlan in_tiles(const Stage& stage, std::size_t tile_bytes) const;
  StepPlan in_order(const Stage& stage, std::size_t tile_bytes, bool vertical) const;
  std::int64_t micro_batches(const Recipe& recipe) const;
};

}  // namespace strata::runtime
