#pragma once
#include <utility>

#include "device/cpu/lane_impl.h"
#include "device/lane.h"

namespace strata::comm {

// Queues f(device::cpu::Team&) in the lane: host work that runs when the lane reaches it, whatever the lane's device.
// It calls no driver of a device (see Event::Twin). Nothing else in this folder knows how a lane is made.
template <typename F>
void host_work(device::Lane& lane, F f) {
  device::cpu::submit(lane, std::move(f));
}

}  // namespace strata::comm
