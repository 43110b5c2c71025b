#pragma once
#include <array>
#include <vector>

#include "runtime/forecast/simulator.h"
#include "runtime/plan/layout/stages.h"

namespace strata::runtime {

// The time for which units keep each lane busy in a step, by which the stages of a pipeline are balanced. Lanes
// overlap, so a stage takes as long as its busiest one.
class StageTimes {
 public:
  explicit StageTimes(std::size_t units);
  // Adds the tasks of the plan's units. Those of a micro-batch count for `micro_batches` of them, whatever the plan's
  // number is.
  void add(const StepPlan& plan, const MachineProfile& machine, int micro_batches);
  double of(const UnitRange& units) const;

 private:
  std::array<std::vector<double>, kLanes> before_;  // by lane and unit: of all units before it
};

}  // namespace strata::runtime
