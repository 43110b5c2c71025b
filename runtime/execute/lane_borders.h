#pragma once
#include <array>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// How each lane behaves between two steps.
struct LaneBorders {
  // Whether the next step may begin before the lane's last task has ended, because the boundary tasks (what the host
  // reads and writes, and its copies on a GPU) do not wait for it, directly or indirectly. False for lanes that wait
  // for host lanes: their flags are recycled when the lane is waited for (device/cuda/flags.h).
  std::array<bool, kLanes> continues{};
  // Whether some of the lane's tasks come before the host writes, so that they overlap with the previous step's end.
  std::array<bool, kLanes> begins_early{};
};
LaneBorders lane_borders(const StepPlan& plan);

}  // namespace strata::runtime
