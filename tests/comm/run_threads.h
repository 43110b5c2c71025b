#pragma once
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

// Runs f(world) on `ranks` threads, each a rank of one world, and rethrows the first exception. `nodes`: the node that
// each rank claims to be on; empty: all ranks are on one.
void run_threads(int ranks, const std::function<void(World&)>& f, const std::vector<int>& nodes = {});

}  // namespace strata::comm
