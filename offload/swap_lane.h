#pragma once
#include <span>

#include "device/lane.h"
#include "offload/swap.h"

namespace strata::offload {

// Queue a transfer of up to kMostRanges ranges in the lane (a host thread); the lane's next work starts when all of it
// has ended. `swap` must outlive the work. The rules of Swap::read and Swap::write apply; their exceptions end the run.
void read(device::Lane& lane, Swap& swap, std::span<const Range> ranges);
void write(device::Lane& lane, Swap& swap, std::span<const Range> ranges);

}  // namespace strata::offload
