#pragma once
// runtime/forecast/ predicts how long a plan takes, without running it. The simulator (here) runs the list of tasks
// against a machine's speeds, which machine.h reads from a file. It decides memory.order = "auto" and draws plan
// --trace.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/forecast/machine_profile.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/span.h"

namespace strata::runtime {

// When each task of the plan would run, in ns from the step's begin. Lanes run in order and tasks respect their waits;
// the tasks that the previous step left running are simulated too. Tasks that run at once share cores, memory, the
// network and drives; if they need more than there is, all slow down (processor sharing). A checkpoint's tasks are left
// out and have no span.
std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine);

// The same for the plans of all stages of a pipeline, by stage. Each receives what the others send. Simulates one step,
// as if no other came before it.
std::vector<std::vector<Span>> simulate(std::span<const StepPlan* const> stages, const MachineProfile& machine);

// The task that ends last among those for which the step's end waits; -1: none. Spans may be of any clock.
int last_awaited(const StepPlan& plan, std::span<const Span> spans);

// The time from the step's begin until the next step can begin: when all tasks for which the host lane's tasks wait
// have ended; in a plan without host tasks, when all tasks have ended.
double makespan_s(const StepPlan& plan, std::span<const Span> spans);

// The share of `step_ms` in which the compute lane ran nothing.
double idle_share(const StepPlan& plan, std::span<const Span> spans, double step_ms);

// The time for which the compute lane was idle because of each lane, in ms. The gap before a compute task is charged to
// the lane of the wait that ended last. If the task also waits for one of the previous step, of which there is no span,
// the rest of the gap is charged to that one's lane. `begin`: the step's begin; -1: unknown, so that the gap before the
// first task is not counted.
std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin = -1);

// The step's time by resource, over the tasks of its critical path: each is the last for which the next one waited. The
// path ends with `last_task`; -1: with last_awaited().
BoundSeconds critical_path(const StepPlan& plan, const MachineProfile& machine, std::span<const Span> spans,
                           int last_task = -1);

}  // namespace strata::runtime
