#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// Squares of this rank's part of a unit's complete gradient, added exactly.
struct Norm {
  int unit;
  int sum = -1, gradients = -1;       // one of them: what GradientSource says
  std::vector<int> shared_gradients;  // with `gradients`: those of the units that share some of its parameters
  // With a sum of one rank that lives elsewhere: the elements that `sum` holds alone, from a whole block of the squares
  // on, and their number; empty: all.
  ElementRange range = {0, 0};
  int chunk = -1;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Norm, loss and stop requests of all ranks: they agree on the clip factor and on whether the step is skipped.
struct Consensus {
  // Adds the buffer of the ranks' messages, too.
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
