#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "models/model.h"
#include "runtime/forecast/simulator.h"
#include "runtime/plan/layout/stages.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The recipe, shortened to at least `least` micro-batches per rank and step (fewer if it has fewer): a multiple of what
// training.reduce_group and the interleaved schedule require.
Recipe with_few_micro_batches(const Recipe& recipe, int ranks, int least);

// The time that units keep each lane busy in a step, which is used to balance the stages of a pipeline. Lanes overlap,
// so a stage takes as long as its busiest one.
class StageTimes {
 public:
  explicit StageTimes(std::size_t units);
  // Adds the tasks of the plan's units. Tasks of micro-batches are scaled to `micro_batches`, whatever the plan's
  // number is.
  void add(const StepPlan& plan, const MachineProfile& machine, int micro_batches);
  double of(const UnitRange& units) const;

 private:
  std::array<std::vector<double>, kLanes> before_;  // per lane and unit: the sum of all units before it
};

// Plans a stage of a split and returns the bytes by which it exceeds the capacity (bytes_above).
using StageExcess = std::function<std::size_t(int stage, const std::vector<UnitRange>& split)>;

// parallel.split = "auto": chooses, among the splits of a model into pipeline stages that fit, the split with the
// fastest slowest stage. Plans a split only if it is the fastest that is not yet known to be too large. If none fits,
// returns the planned split whose largest stage exceeds the capacity the least, so that the refusal shows the memory
// needed.
std::vector<UnitRange> balanced_split(const models::Model& model, int stages, int chunks, const PieceTime& time,
                                      const StageExcess& excess);

// The plan of a stage of a split, and the bytes by which it exceeds the capacity.
struct StagePlan {
  StepPlan plan;
  std::size_t excess;
};
using PlanStage = std::function<StagePlan(int stage, const std::vector<UnitRange>& split)>;

// Moves single units from stage to stage as long as all stages fit and the simulated step becomes shorter: a stage
// takes longer than its busiest lane if its lanes wait for each other. Simulates at most `most` splits. All plans have
// the same micro-batches.
std::vector<UnitRange> improved_split(std::vector<UnitRange> split, int stages, std::size_t most,
                                      const PlanStage& plan_stage);

// A split, and the number of tasks in the plans that were made to find one that fits.
struct ChosenSplit {
  std::vector<UnitRange> pieces;
  std::size_t tasks = 0;
};
// The split that the recipe gives, or balanced_split(), improved if the step is short. For the latter two, `whole`
// plans the model in one stage and `plan_stage` a stage, with a recipe of fewer micro-batches than the run's: times and
// memory follow from these.
ChosenSplit choose_split(
    const Recipe& recipe, const models::Model& model, int ranks, const std::function<StepPlan(const Recipe&)>& whole,
    const std::function<StagePlan(const Recipe&, int stage, const std::vector<UnitRange>&)>& plan_stage);

// memory.order = "auto": plans one step in both orders and takes one of them.
//
// The order with less memory (device and host together) wins, unless the other gains at least half as much speed as it
// adds memory, on a nominal machine of the plan's kind: 5% for each 10%. If both are equal, the order that moves fewer
// bytes wins. If only one order fits, it is taken; if neither does, the order with less memory is taken. An order that
// needs more device memory than the other must also stay within device_limit() bytes, which is called only in that
// case.
struct OrderedPlan {
  const StepPlan& plan;
  bool fits;
};
bool takes_vertical(const OrderedPlan& horizontal, const OrderedPlan& vertical,
                    const std::function<std::size_t()>& device_limit);

// Returns the recipe with one choice of zero.* undone at a time: a lower stage, or one state a tier nearer to the
// device. A recipe that moves or shards state to save device memory must not use more of it than any of these; they set
// the limit of takes_vertical().
std::vector<Recipe> with_less_moved(const Recipe& recipe, int ranks);

}  // namespace strata::runtime
