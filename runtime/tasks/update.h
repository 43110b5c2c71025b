#pragma once
#include <vector>

#include "runtime/tasks/reduce.h"

namespace strata::runtime {

// The optimizer step of elements [begin, end) in this rank's part of a unit, with the scalars of this step or, in a
// cycle, of the previous one.
struct Update {
  int unit;
  ElementRange elements;  // counted from the beginning of the part
  std::vector<GradientSource> gradient;
  Slice master, moment1;
  Slice moment2 = {};     // no buffer: the optimizer has none
  Slice parameters = {};  // in the compute dtype; no buffer: the master is the parameters

  // Runs where the state is.
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
