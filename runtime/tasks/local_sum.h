#pragma once
#include "runtime/tasks/reduce.h"

namespace strata::runtime {

// With training.reduce = "fast" a rank adds its micro-batches' gradients by itself, and what travels is the rounded
// sum.

// The gradient of one micro-batch onto the fp32 sum of those before.
struct Accumulate {
  CallGradient gradient;
  Written sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// The sum, rounded, into the buffer of the last micro-batch's gradient.
struct Round {
  CallGradient gradient;
  Written sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
