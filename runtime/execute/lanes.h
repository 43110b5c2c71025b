#pragma once
#include <memory>
#include <vector>

#include "device/lane.h"

namespace strata::runtime {

// By LaneId; null where the plan does not use it.
using Lanes = std::vector<std::unique_ptr<device::Lane>>;

}  // namespace strata::runtime
