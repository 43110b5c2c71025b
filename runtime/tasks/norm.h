#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Adds the squares of this rank's part of a unit's complete gradient to the step's sum of squares, exactly (ExactSum).
struct Norm {
  int unit;
  int sum = -1, gradients = -1;       // one of the two, see GradientSource
  std::vector<int> shared_gradients;  // with `gradients`: of the units that share its parameters
  // If sums are on the device by tiles (sums_in_tiles): the elements that `sum` holds, beginning at a block of the
  // norm, and the number of this chunk. Empty: `sum` holds all.
  ElementRange range = {0, 0};
  int chunk = -1;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// Exchanges norm, loss and stop requests, so that all ranks agree on the clip factor and on whether to skip the step.
struct Consensus {
  // Also adds the buffer for the ranks' messages.
  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
