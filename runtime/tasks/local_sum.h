#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// With training.reduce = "fast" a rank adds its micro-batches' gradients by itself, and what travels is the rounded
// sum.

// The gradient of one micro-batch onto the fp32 sum of those before.
struct Accumulate {
  UnitPart which;
  int micro_batch;
  ElementRange range;  // of the flat buffer in which the gradient's elements lie
  bool shared;         // the gradient is of what the unit shares with another
  int gradients;
  Written sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// The sum, rounded, into the buffer of the last micro-batch's gradient.
struct Round {
  UnitPart which;
  ElementRange range;
  bool shared;
  bool starts;  // a sum of one micro-batch
  int sum, gradients;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
