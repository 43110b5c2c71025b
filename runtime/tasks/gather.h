#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// All-gather of the parameters of a unit, or of one of its parts, from the ranks' shards.
struct Gather {
  UnitPart which;
  Slice shard;  // this rank's
  int parameters;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// All-gather of the updated parts of what a rank holds of a unit's parameters, each in its place, from the ranks that
// hold the same of them.
struct Spread {
  int unit, parameters;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// All-gather of a unit's fp32 gradient sums, each rank's shard in its place, between ranks that hold the same of them.
struct GatherSums {
  int unit, sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
