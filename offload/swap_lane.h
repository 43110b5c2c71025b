#pragma once
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"
#include "offload/swap.h"

namespace strata::offload {

// Queue a transfer in the lane (a thread of the host): the lane's next work starts when it has ended. `swap` outlives
// the work. The rules of Swap::read and Swap::write hold; what they throw ends the run.
void read(device::Lane& lane, Swap& swap, std::uint64_t offset, device::View to);
void write(device::Lane& lane, Swap& swap, std::uint64_t offset, device::ConstView from);

}  // namespace strata::offload
