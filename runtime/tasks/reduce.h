#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// All-to-all of a gradient: every rank's pieces of what this rank owns, added onto its fp32 sum in rank order.
struct ReduceGradient {
  UnitPart which;
  int micro_batch;
  ElementRange range;  // of the flat buffer in which the gradient's elements lie: the unit's, or the holder's
  bool shared;         // the gradient is of what the unit shares with another
  bool first;          // nothing has been added to these elements of the sum
  int gradients;
  Written sum;

  // Adds the buffer that receives, too.
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// A unit's sum for what it shares onto the sum of the unit that holds that.
struct Combine {
  int holder, sharer;
  int shared_sum, sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
