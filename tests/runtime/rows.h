#pragma once
#include <algorithm>
#include <cstddef>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Whether a trace shows the task: what the host does between steps, and for checkpoints, has no row.
inline bool has_row(const Task& task) {
  return static_cast<std::size_t>(task.lane) < kTrainingLanes;
}
inline std::size_t tasks_with_rows(const StepPlan& plan) {
  return static_cast<std::size_t>(std::count_if(plan.tasks.begin(), plan.tasks.end(), has_row));
}

}  // namespace strata::runtime
