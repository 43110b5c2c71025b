#pragma once
#include <utility>

#include "device/cpu/lane_impl.h"
#include "device/lane.h"

namespace strata::comm {

// Queues f(device::cpu::Team&) in the lane: work of the host that runs when the lane, of whatever device, gets there.
// It calls no driver of a device (see Event::Twin). The one place of this folder that knows what a lane is made of.
template <typename F>
void host_work(device::Lane& lane, F f) {
  device::cpu::submit(lane, std::move(f));
}

}  // namespace strata::comm
