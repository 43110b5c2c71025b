#pragma once
#include <array>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// By lane: what becomes of it between two steps.
struct LaneBorders {
  // The next step begins before the lane's last task has ended: what the host reads and writes, and the copies of it on
  // a GPU, neither wait for that nor for what does. Lanes that wait for lanes of the host are left out: their flags are
  // taken back when the lane is waited for (device/cuda/flags.h).
  std::array<bool, kLanes> goes_on{};
  // Some of its tasks come before the host writes, beside the end of the step before.
  std::array<bool, kLanes> begins_early{};
};
LaneBorders lane_borders(const StepPlan& plan);

}  // namespace strata::runtime
