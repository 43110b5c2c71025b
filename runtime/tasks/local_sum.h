#pragma once
#include "runtime/tasks/collectives/reduce.h"

namespace strata::runtime {

// With training.reduce = "fast", each rank sums its micro-batches' gradients locally, and ranks exchange the rounded
// sums.

// Adds the gradient of one micro-batch to the fp32 sum of the earlier ones.
struct Accumulate {
  CallGradient gradient;
  Written sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Rounds the sum into the buffer of the last micro-batch's gradient.
struct Round {
  CallGradient gradient;
  Written sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
