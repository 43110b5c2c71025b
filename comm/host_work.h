#pragma once
#include <utility>

#include "device/cpu/lane_impl.h"
#include "device/lane.h"

namespace strata::comm {

// Queues f(device::cpu::Team&) in the lane: host work that runs when the lane reaches it, whatever the lane's device. f
// calls no device driver (see Event::Twin). The rest of this folder does not depend on how a lane is implemented.
template <typename F>
void host_work(device::Lane& lane, F f) {
  device::cpu::submit(lane, std::move(f));
}

}  // namespace strata::comm
