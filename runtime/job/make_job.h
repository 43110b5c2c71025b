#pragma once
// runtime/job/ turns a recipe into a job that can run: the model and its plan, the memory that is available
// (available_memory.h), the device that a rank computes on (seat.h), the algorithms that a GPU's products use
// (algorithms.h), and what would fit if the plan does not (suggestion.h). `strata plan` ends here; `train`, `eval` and
// `generate` run the same Job.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/seat.h"
#include "runtime/plan/job.h"
#include "runtime/plan/workload.h"

namespace strata::runtime {

// What a job's plan does: training steps; forward passes and losses only, one micro-batch per rank and step; or the
// generation of one sequence of at most data.seq_len tokens.
enum class Purpose : std::uint8_t { train, evaluate, generate };

// The device that a rank uses, and the bytes that it may use in each tier. `together` limits device and host, which are
// one memory on the CPU.
struct Capacity {
  std::array<std::size_t, kTiers> tier;
  std::size_t together;
  device::Device device = {};

  std::size_t operator[](Tier t) const { return tier[static_cast<std::size_t>(t)]; }
};

// Where a training run begins: after which step, and whether the evaluation due at that step has been made.
struct Beginning {
  std::int64_t step = 0;
  bool evaluated = false;
};
// Whether an evaluation is due at `from` or later (PeriodicEvaluation::due).
bool comes_to_evaluation(const Recipe& recipe, const Beginning& from);

// Builds the model and plans the step for the capacity's device. Throws Error{usage} and Error{corrupt}.
// - Workspaces are sized for all cores that the CPU quota (cpu_quota) leaves, however the ranks share them.
// - memory.order = auto becomes one of the two orders by the rule in order.h.
// - If the optimizer state is on NVMe, the first unit's part is read ahead, unless host memory does not allow it or
//   memory.prefetch is 0.
// - If the step does not fit and parameters are sharded, the largest units are gathered in tiles, as few as possible.
// - A training run's plan includes the memory of its evaluations, if any is due.
// - The plan is that of the pipeline stage of rank `rank`. The stages have the units of `split` (StepPlan::stages); if
//   it is empty, those that the recipe gives, or the fastest split that fits (balanced_split).
Job make_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train,
             const Beginning& from = {}, int rank = 0, std::vector<UnitRange> split = {});
// As above, but opens the recipe's model itself (open_workload) and does not read the data.
Job make_job(const Recipe& recipe, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train);
// A training's jobs, one for the first rank of each pipeline stage.
std::vector<Job> jobs_of_stages(const Workload& workload, int ranks, const Capacity& capacity);

// Returns memory.* if the recipe sets it. Otherwise the host has what the system has available now, divided by
// `ranks_on_node`, and a GPU has what is free on it, divided by the ranks that share it, less 1 GiB or 1/32 for its
// libraries. Throws Error{usage} if only memory.device could say it.
Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat = {});

// As capacity_of(), but for a run on this machine: limited to the memory that there is, whatever the recipe says.
Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat = {});

bool fits(const StepPlan& plan, const Capacity& capacity);
// Whether every pipeline stage of a training's job fits; of one that has a single stage, the job itself.
bool every_stage_fits(const Job& job, const Capacity& capacity);

// A plan lists every call of a unit in a step. This many calls take a few seconds to plan; a recipe that needs more is
// refused.
inline constexpr std::int64_t kMostCalls = 1 << 16;
bool plannable(const Recipe& recipe, std::size_t units, int ranks, Purpose purpose);

// "horizontal" or "vertical", whichever order the plan has.
std::string_view order_name(const StepPlan& plan);

// "parameters of units above 1.50 GiB gathered in tiles"; empty if no unit is.
std::string tiling_text(const StepPlan& plan);

// "device 1.50 GiB, host 320.0 MiB": the peak of each tier that is used.
std::string memory_text(const Memory& memory);
// As above, with tier_title() for the tiers' names.
std::string memory_text(const StepPlan& plan);
// A tier's name in messages to users: kTierNames, except that a CPU's device tier is "RAM for the model".
std::string_view tier_title(std::size_t tier, bool on_cpu);

}  // namespace strata::runtime
