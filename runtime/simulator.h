#pragma once
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/plan.h"

namespace strata::runtime {

// Speeds of a rank's machine. The defaults are nominal (a small CPU node) until `strata calibrate` measures them: they
// order tasks on a timeline, and promise nothing.
struct MachineProfile {
  double flops_per_s = 2e11;       // of products
  double bytes_per_s = 2e10;       // through memory
  double link_bytes_per_s = 5e9;   // to other ranks
  double task_overhead_s = 20e-6;  // issuing and waking
};

// When each task of the plan would run: lanes in order, waits kept, each task bound by the slowest of its costs.
std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine);

// Time that the compute lane stood still for each lane, in ms: before each compute task, charged to the lane of the
// wait that ended last.
std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans);

}  // namespace strata::runtime
