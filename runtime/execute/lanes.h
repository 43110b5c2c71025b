#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// By LaneId; null where the plan does not use it.
using Lanes = std::vector<std::unique_ptr<device::Lane>>;

// What a rank's work is queued in, and what connects two of the lanes to the other ranks. Compute, gather and reduce
// are there in every plan.
struct Queues {
  // Collective. `threads`: of the lanes that compute; the world outlives it.
  Queues(const StepPlan& plan, comm::World& world, int threads);

  device::Lane& of(LaneId lane) const { return *lanes[static_cast<std::size_t>(lane)]; }
  // Waits for all that was queued; a checkpoint goes on. Throws Aborted.
  void settle() const;
  // By this rank so far, exact when settled.
  comm::CommBytes sent() const;

  Lanes lanes;
  std::unique_ptr<comm::Communicator> gather, reduce;
};

}  // namespace strata::runtime
