#pragma once
// runtime/forecast/ says how long a plan takes without running it: the simulator (here) runs the same list of tasks
// against the speeds of a machine, which machine.h reads from a file of strata calibrate. It settles memory.order =
// "auto" and draws plan --trace.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/span.h"

namespace strata::runtime {

// Speeds that a rank's tasks meet, each alone on the machine. The defaults are nominal (a small CPU node), where no
// machine file (runtime/forecast/machine.h) says what was measured: they order tasks on a timeline, and promise
// nothing.
struct MachineProfile {
  double flops_per_s = 2e11, attention_flops_per_s = 1e11;  // of products; of attention
  double bytes_per_s = 2e10, loss_bytes_per_s = 2e10;       // what else blocks do; what the loss does with logits
  double update_bytes_per_s = 2e10;
  double host_update_bytes_per_s = 0;                      // by the host's cores beside a GPU; 0: as update_bytes_per_s
  double sum_bytes_per_s = 1e10, norm_bytes_per_s = 1e10;  // gradients added, their squares summed: by one thread
  double host_bytes_per_s = 1e10;                          // between device and host
  double all_gather_bytes_per_s = 5e9, all_to_all_bytes_per_s = 5e9;  // sent by a rank
  double read_bytes_per_s = 2e9, write_bytes_per_s = 2e9;             // the drives of the nvme tier
  double read_latency_s = 1e-4, write_latency_s = 1e-4;               // of a transfer, beyond its bytes
  double task_overhead_s = 20e-6;                                     // issuing and waking
  // What lanes share on the CPU device; 0: nothing, each has its own.
  double cores = 0, memory_bytes_per_s = 2e10;
  double disk_core_share = 0;       // what the drives take of the cores while they are busy: 1 is all of them
  double disk_both_ways = 1;        // how much a read and a write at once get done of what either would alone
  double disk_beside_products = 1;  // how fast the drives are while others use all cores, of their speed alone
};

// Nominal speeds for a plan: the defaults (with bf16's instructions for its products), or those of a data-centre GPU
// with host and drives beside it. Of the plan alone, so that every rank has the same.
MachineProfile nominal_profile(const StepPlan& plan);

// What a task's time goes to.
enum class Bound : std::uint8_t { products, attention, memory, optimizer, communication, host_link, disk, waking };
inline constexpr std::array<std::string_view, 8> kBoundNames = {"products",      "attention", "memory", "optimizer",
                                                                "communication", "host link", "disk",   "waking"};
// The same in a practitioner's words, for people; files keep the names above.
inline constexpr std::array<std::string_view, 8> kBoundWords = {"GEMM",      "attention",      "memory-bound kernels",
                                                                "optimizer", "communication",  "host-device copies",
                                                                "disk",      "synchronisation"};
using BoundSeconds = std::array<double, kBoundNames.size()>;
double sum_of(const BoundSeconds& seconds);

// Of the task alone on the machine.
BoundSeconds seconds_of(const Task& task, const MachineProfile& machine);

// When each task of the plan would run, in ns from the step's begin: lanes in order, waits kept, and beside what the
// step before leaves to run on. A checkpoint's tasks are left out, and have no span. Tasks that run at once share
// cores, memory and drives: if they ask for more than there is, all of them get their part (processor sharing).
std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine);

// The task that ends last of those that the step's end waits for; -1: none. spans of any clock.
int last_awaited(const StepPlan& plan, std::span<const Span> spans);

// From the step's begin until the next can begin: what the tasks of the host's lane wait for has ended. Of a plan
// without any, until the last task has.
double makespan_s(const StepPlan& plan, std::span<const Span> spans);

// Time that the compute lane stood still for each lane, in ms: before each compute task, charged to the lane of the
// wait that ended last; what is left after it, to that of a task of the step before, of which there is no span.
// `begin`: of the step; -1: unknown, and the wait before the first task is not counted.
std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin = -1);

// What the step's time goes to: of the tasks on its critical path, each the last that the next one waited for.
BoundSeconds critical_path(const StepPlan& plan, const MachineProfile& machine, std::span<const Span> spans);

}  // namespace strata::runtime
