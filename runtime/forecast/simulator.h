#pragma once
// runtime/forecast/ predicts how long a plan takes, without running it. The simulator (here) runs the list of tasks
// against a machine's speeds, which machine.h reads from a file. It determines memory.order = "auto" and the times of
// plan --trace.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The speeds of a rank's tasks, each running alone on the machine. The defaults are nominal (a small CPU node), for use
// without a machine file (machine.h): they suffice to order tasks on a timeline, but predict no times.
struct MachineProfile {
  double flops_per_s = 2e11, attention_flops_per_s = 1e11;  // speeds of products, and of attention
  double bytes_per_s = 2e10, loss_bytes_per_s = 2e10;       // speeds of a block's other work, and of the loss on logits
  double update_bytes_per_s = 2e10;
  double host_update_bytes_per_s = 0;  // speed on the host's cores next to a GPU; 0: update_bytes_per_s
  double sum_bytes_per_s = 1e10, norm_bytes_per_s = 1e10;  // adding gradients; summing their squares: on one thread
  double host_bytes_per_s = 1e10;                          // between device and host
  double all_gather_bytes_per_s = 5e9, all_to_all_bytes_per_s = 5e9;  // bytes sent by a rank within its node
  // Bytes sent by a rank to other nodes, while it also sends within its own, and the latency of a message. 0: as fast
  // as within a node.
  double network_bytes_per_s = 0, network_latency_s = 0;
  double read_bytes_per_s = 2e9, write_bytes_per_s = 2e9;  // the drives of the nvme tier
  double read_latency_s = 1e-4, write_latency_s = 1e-4;    // per transfer, in addition to its bytes
  double task_overhead_s = 20e-6;                          // time to issue a task and wake its lane
  // The resources that lanes share on the CPU. cores 0: none, as on a GPU.
  double cores = 0, memory_bytes_per_s = 2e10;
  double disk_core_share = 0;  // share of the cores that the drives use while they are busy; 1 is all of them
  double disk_both_ways = 1;   // throughput of a simultaneous read and write, relative to either alone
  double disk_speed_during_products =
      1;  // speed of the drives while others use all cores, relative to their speed alone
};

// Nominal speeds for a plan: on the CPU the defaults (with faster products in bf16), on a GPU the speeds of a
// data-centre GPU with its host and drives. They depend only on the plan, so every rank makes the same decision.
MachineProfile nominal_profile(const StepPlan& plan);

// The resource that bounds a share of a task's time. `stages`: messages of other stages that a stage waits for.
enum class Bound : std::uint8_t {
  products,
  attention,
  memory,
  optimizer,
  communication,
  host_link,
  disk,
  waking,
  stages
};
inline constexpr std::array<std::string_view, 9> kBoundNames = {
    "products", "attention", "memory", "optimizer", "communication", "host link", "disk", "waking", "stages"};
// The same in practitioners' terms, for display. Files use the names above.
inline constexpr std::array<std::string_view, 9> kBoundWords = {"GEMM",      "attention",       "memory-bound kernels",
                                                                "optimizer", "communication",   "host-device copies",
                                                                "disk",      "synchronisation", "other stages"};
using BoundSeconds = std::array<double, kBoundNames.size()>;
double sum_of(const BoundSeconds& seconds);

// The time, by resource, of a task that runs alone on the machine.
BoundSeconds seconds_of(const Task& task, const MachineProfile& machine);

// When each task of the plan would run, in ns from the start of the step. Lanes run in order and tasks respect their
// waits; the tasks that the previous step left running are simulated too. Concurrent tasks share cores, memory, the
// network and drives; if they need more than the machine has, all slow down (processor sharing). A checkpoint's tasks
// are left out and have no span.
std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine);

// The same for the plans of all stages of a pipeline, by stage. Each stage receives the messages that others send.
// Simulates one step, as if no other came before it.
std::vector<std::vector<Span>> simulate(std::span<const StepPlan* const> stages, const MachineProfile& machine);

// The task that ends last among those that the step's end waits for; -1: none. Spans may be of any clock.
int last_awaited(const StepPlan& plan, std::span<const Span> spans);

// The time from the start of the step until the next step can start: when all tasks that the host lane's tasks wait for
// have ended or, in a plan without host tasks, when all tasks have ended.
double makespan_s(const StepPlan& plan, std::span<const Span> spans);

// The share of `step_ms` in which the compute lane ran nothing.
double idle_share(const StepPlan& plan, std::span<const Span> spans, double step_ms);

// The time in ms that the compute lane was idle because of each lane. The gap before a compute task is charged to the
// lane of the wait that ended last. If the task also waits for a task of the previous step, which has no span, the rest
// of the gap is charged to that task's lane. `begin`: the start of the step; -1: unknown, and the gap before the first
// task is not counted.
std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin = -1);

// A pipeline stage, simulated together with the others. Points into the caller's plans and spans.
struct SimulatedStage {
  const StepPlan* plan;
  std::span<const Span> spans;
};
// The time until the next step can begin in all stages.
double makespan_s(std::span<const SimulatedStage> stages);
// For each task of the stage that receives a message: when sending the message began, in ns. For other tasks: 0.
std::vector<std::int64_t> send_times(std::span<const SimulatedStage> stages, int stage);

// The step's time by resource, over the tasks of its critical path: each is the last one that the next one waited for.
// The path ends with `last_task`; -1: with last_awaited(). With `send_times`, a wait for a message that is already on
// its way is communication, and not a wait for another stage.
BoundSeconds critical_path(const StepPlan& plan, const MachineProfile& machine, std::span<const Span> spans,
                           int last_task = -1, std::span<const std::int64_t> send_times = {});

}  // namespace strata::runtime
