#pragma once
#include <vector>

#include "runtime/tasks/collectives/reduce.h"

namespace strata::runtime {

// The optimizer step of some elements of this rank's part of a unit. It takes the scalars of this step or, in a cyclic
// plan, of the previous one.
struct Update {
  int unit;
  ElementRange elements;  // counted from the start of the part
  std::vector<GradientSource> gradient;
  Slice master, moment1;
  Slice moment2 = {};     // no buffer: the optimizer has no second moment
  Slice parameters = {};  // values in the compute dtype; no buffer: the master serves as the parameters

  // The task runs on the device or the host, depending on where the state is.
  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
