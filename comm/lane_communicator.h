#pragma once
#include <memory>

#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/levels.h"

namespace strata::comm {

// Queues a backend's collectives in a lane and counts them. The lane outlives the communicator, and the communicator
// outlives its queued work: destroy it after a synchronize() of the lane, or after the lane.
std::unique_ptr<Communicator> queue_in_lane(device::Lane& lane, std::unique_ptr<Collectives> collectives,
                                            Levels levels);

}  // namespace strata::comm
