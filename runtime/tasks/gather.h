#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// All-gather of a unit's parameters, or of a part's, from the ranks' shards.
struct Gather {
  UnitPart which;
  Slice shard = {};  // this rank's; no buffer: it lies in its place among the others
  int parameters;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// All-gather of a unit's fp32 gradient sums, each rank's in its place, for an optimizer that is whole on every rank.
struct GatherSums {
  int unit, sum;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
