#pragma once
#include <algorithm>
#include <cstddef>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Whether a trace shows the task. Work of the host between steps and for checkpoints has no row.
inline bool has_row(const Task& task) {
  return static_cast<std::size_t>(task.lane) < kTrainingLanes;
}
inline std::size_t tasks_with_rows(const StepPlan& plan) {
  return static_cast<std::size_t>(std::count_if(plan.tasks.begin(), plan.tasks.end(), has_row));
}

// Counts the waits for tasks of the same step or, if `across`, of the previous one.
inline std::size_t waits_between_rows(const StepPlan& plan, bool across) {
  std::size_t n = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    for (const int wait : plan.tasks[t].waits) {
      const auto other = static_cast<std::size_t>(wait);
      if ((other >= t) == across && has_row(plan.tasks[t]) && has_row(plan.tasks[other])) ++n;
    }
  return n;
}

}  // namespace strata::runtime
