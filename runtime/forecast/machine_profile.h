#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The speeds of a rank's tasks, each running alone on the machine. The defaults are nominal (a small CPU node), for use
// without a machine file (machine.h): they suffice to order tasks on a timeline, but predict no times.
struct MachineProfile {
  double flops_per_s = 2e11, attention_flops_per_s = 1e11;  // for products; for attention
  double bytes_per_s = 2e10, loss_bytes_per_s = 2e10;  // for the rest of a block's work; for the loss's work on logits
  double update_bytes_per_s = 2e10;
  double host_update_bytes_per_s = 0;  // on the host's cores next to a GPU; 0: same as update_bytes_per_s
  double sum_bytes_per_s = 1e10, norm_bytes_per_s = 1e10;  // adding gradients; summing their squares: on one thread
  double host_bytes_per_s = 1e10;                          // between device and host
  double all_gather_bytes_per_s = 5e9, all_to_all_bytes_per_s = 5e9;  // bytes sent by a rank within its node
  // Bytes sent by a rank to other nodes, while it also sends within its own, and the latency of a message. 0: as fast
  // as within a node.
  double network_bytes_per_s = 0, network_latency_s = 0;
  double read_bytes_per_s = 2e9, write_bytes_per_s = 2e9;  // the drives of the nvme tier
  double read_latency_s = 1e-4, write_latency_s = 1e-4;    // per transfer, in addition to its bytes
  double task_overhead_s = 20e-6;                          // for issuing a task and waking its lane
  // What lanes share on the CPU. cores 0: nothing, as on a GPU.
  double cores = 0, memory_bytes_per_s = 2e10;
  double disk_core_share = 0;       // share of the cores that the drives use while they are busy; 1 is all of them
  double disk_both_ways = 1;        // throughput of a simultaneous read and write, relative to either alone
  double disk_beside_products = 1;  // speed of the drives while others use all cores, relative to their speed alone
};

// Nominal speeds for a plan: on the CPU the defaults (with faster products in bf16), on a GPU those of a data-centre
// GPU with its host and drives. They depend only on the plan, so that every rank decides alike.
MachineProfile nominal_profile(const StepPlan& plan);

// The resource that bounds a share of a task's time. `stages`: messages of other stages, for which a stage waits.
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
// The same in practitioners' words, for people to read; files keep the names above.
inline constexpr std::array<std::string_view, 9> kBoundWords = {"GEMM",      "attention",       "memory-bound kernels",
                                                                "optimizer", "communication",   "host-device copies",
                                                                "disk",      "synchronisation", "other stages"};
using BoundSeconds = std::array<double, kBoundNames.size()>;
double sum_of(const BoundSeconds& seconds);

// The time of a task that runs alone on the machine, by resource.
BoundSeconds seconds_of(const Task& task, const MachineProfile& machine);

}  // namespace strata::runtime
