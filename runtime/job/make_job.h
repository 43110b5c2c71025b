#pragma once
// runtime/job/ makes a recipe into a job that can run: the model, its plan, and the memory there is
// (available_memory.h); which device a rank computes on (seat.h); what would fit if it does not (suggestion.h); which
// of a GPU's algorithms its products use (algorithms.h). `strata plan` ends here; `train`, `eval` and `generate` go on
// from the same Job.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/seat.h"
#include "runtime/plan/job.h"
#include "runtime/plan/workload.h"

namespace strata::runtime {

// What the plan of a job does: training steps; forwards and losses alone, one micro-batch a rank and step; or the
// generation of one sequence of data.seq_len tokens at most.
enum class Purpose : std::uint8_t { train, evaluate, generate };

// Bytes that a rank may use in each tier, and of device and host together: on the CPU they are one memory. And the
// device that has them.
struct Capacity {
  std::array<std::size_t, kTiers> tier;
  std::size_t together;
  device::Device device = {};

  std::size_t operator[](Tier t) const { return tier[static_cast<std::size_t>(t)]; }
};

// Where a training begins: after which step, and whether the evaluation that is due there is made already.
struct Beginning {
  std::int64_t step = 0;
  bool evaluated = false;
};
// Whether an evaluation is due at it or later (PeriodicEvaluation::due).
bool comes_to_evaluation(const Recipe& recipe, const Beginning& from);

// Prepares the model and plans the step, for the capacity's device. Workspaces are for all cores that a quota of the
// processor (cpu_quota) leaves, however ranks share them. memory.order = auto becomes one of the two by order.h. Of an
// optimizer's state on NVMe the first unit's is read ahead if host memory allows it and memory.prefetch is not 0. If
// the step does not fit and parameters are sharded, the largest units are gathered part by part, as few of them as
// needed. What evaluations take is in the plan of a training that comes to one. Throws Error{usage}, Error{corrupt}.
Job make_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train,
             const Beginning& from = {});
// The same of a recipe whose model is opened here (open_workload), and whose data nobody looks at.
Job make_job(const Recipe& recipe, int ranks, const Capacity& capacity, Purpose purpose = Purpose::train);

// memory.* where the recipe sets it, else what the system has available now, shared by `ranks_on_node`, and what is
// free on a GPU, shared by those that have the same, less 1 GiB or a 32nd for what its libraries take. Throws
// Error{usage} if memory.device is needed to say it.
Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat = {});

// The same for a run on this machine: no more than there is, whatever the recipe says.
Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat = {});

bool fits(const StepPlan& plan, const Capacity& capacity);

// A plan lists every call of a unit in a step: so many are a few seconds' work, and what has more is refused.
inline constexpr std::int64_t kMostCalls = 1 << 16;
bool plannable(const Recipe& recipe, std::size_t units, int ranks, Purpose purpose);

// "horizontal" or "vertical": the order that the plan has.
std::string_view order_name(const StepPlan& plan);

// "parameters of units above 1.50 GiB gathered in tiles"; empty if none is.
std::string tiling_text(const StepPlan& plan);

// "device 1.50 GiB, host 320.0 MiB": the peaks of the tiers that are used.
std::string memory_text(const Memory& memory);
// The same of a plan, for people who start it: its tiers have their titles.
std::string memory_text(const StepPlan& plan);
// A tier's name for people: kTierNames', but a CPU's device tier is "RAM for the model".
std::string_view tier_title(std::size_t tier, bool on_cpu);

}  // namespace strata::runtime
