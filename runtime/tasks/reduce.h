#pragma once
#include "runtime/tasks/gradient.h"

namespace strata::runtime {

// All-to-all of a gradient: every rank's pieces of what this rank owns, added onto its fp32 sum in rank order.
struct ReduceGradient {
  CallGradient gradient;
  Written sum;
  bool first;  // nothing has been added to these elements of the sum

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
