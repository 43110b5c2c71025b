#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "runtime/plan/plan.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// By LaneId; null where the plan does not use it.
using Lanes = std::vector<std::unique_ptr<device::Lane>>;

// What a rank's work is queued in, and what connects two of the lanes to the other ranks or to groups of them. Compute,
// gather and reduce are there in every plan.
struct Queues {
  // Collective. `threads`: of the lanes that compute; the world outlives it.
  Queues(const StepPlan& plan, comm::World& world, int threads);

  device::Lane& of(LaneId lane) const { return *lanes[static_cast<std::size_t>(lane)]; }
  // Waits for all that was queued; a checkpoint goes on. Throws Aborted.
  void settle() const;
  // By this rank so far, exact when settled.
  comm::CommBytes sent() const;

  Lanes lanes;
  comm::Communicator* gather = nullptr;  // over all ranks, in their order
  // Of the tasks. Where a group would be this rank alone, which exchanges nothing, it is all ranks.
  Communicators over() const { return {*parameters_, *updates_, *gradients_, *sums_}; }

 private:
  struct Opened {
    LaneId lane;
    comm::Group group;
    std::unique_ptr<comm::Communicator> communicator;
  };
  // Opens it if the lane has none of the group.
  comm::Communicator* open(LaneId lane, const comm::Group& group, comm::World& world);

  std::vector<Opened> opened_;
  comm::Communicator *parameters_, *updates_, *gradients_, *sums_;
};

}  // namespace strata::runtime
