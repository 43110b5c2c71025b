#pragma once
// runtime/job/ turns a recipe into a job that can run: the model and its plan (of one pipeline stage:
// stage_planner.h), the device that a rank computes on, and the memory that is available (capacity.h). search/ makes
// jobs to find one that fits or is fast. `strata plan` stops at the job; `train`, `eval` and `generate` run it.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/capacity.h"
#include "runtime/plan/job.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// The purpose of a job's plan: training steps; forward passes and losses only, one micro-batch per rank and step; or
// the generation of one sequence of at most data.seq_len tokens.
enum class Purpose : std::uint8_t { train, evaluate, generate };

// Where a training run starts: after which step, and whether the evaluation due at that step has been made.
struct StartPoint {
  std::int64_t step = 0;
  bool evaluated = false;
};
// True if an evaluation is due at `from` or later (PeriodicEvaluation::due).
bool will_evaluate(const Recipe& recipe, const StartPoint& from);

// Builds the model and plans the step for the capacity's device. Throws Error{usage} and Error{corrupt}.
// - Workspaces are sized for all cores that the CPU quota (cpu_quota) leaves, however the ranks share them.
// - memory.order = auto becomes one of the two orders by the rule in choices.h.
// - If the optimizer state is on NVMe, the first unit's part is read ahead, unless host memory does not allow it or
//   memory.prefetch is 0.
// - If the step does not fit and parameters are sharded, the largest units are gathered in tiles, as few as possible.
// - A training run's plan includes the memory of its evaluations, if any is due.
// - The plan is for the pipeline stage of rank `rank`. The stages have the units in `split` (StepPlan::stages); if
//   it is empty, the recipe's split, or the fastest that fits (balanced_split).
Job make_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train,
             const StartPoint& from = {}, int rank = 0, std::vector<UnitRange> split = {});
// The same in less time, for a search: the tasks of a plan that does not fit have no waits.
Job draft_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train);
// The jobs of a training run, one for the first rank of each pipeline stage.
std::vector<Job> jobs_of_stages(const Workload& workload, int ranks, const Capacity& capacity);
// The same without the job of stage 0, which is `first`.
std::vector<Job> jobs_of_later_stages(const Job& first, const Capacity& capacity);

// For each tier, the most memory that any pipeline stage of a training run needs. nullopt if a stage does not fit.
std::optional<Memory> memory_of_stages(const Job& job, const Capacity& capacity);

// The micro-batches of a rank in a step, or of an evaluation's call.
std::int64_t micro_batches_of(const Recipe& recipe, int ranks, Purpose purpose);

// "horizontal" or "vertical", whichever order the plan has.
std::string_view order_name(const StepPlan& plan);

// "parameters of units above 1.50 GiB gathered in tiles"; empty if no unit is.
std::string tiling_text(const StepPlan& plan);

// "device 1.50 GiB, host 320.0 MiB": the peak of each tier that is used.
std::string memory_text(const Memory& memory);
// The same with tier_title() for the tiers' names.
std::string memory_text(const StepPlan& plan);
// A tier's name in messages to users: kTierNames, except that a CPU's device tier is "RAM for the model".
std::string_view tier_title(std::size_t tier, bool on_cpu);

}  // namespace strata::runtime
