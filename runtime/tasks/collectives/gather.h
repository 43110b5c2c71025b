#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// All-gather of the parameters of a unit, or of one of its parts, from the ranks' shards.
struct Gather {
  UnitPart which;
  Slice shard;  // this rank's
  int parameters;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// In-place all-gather of a unit's updated parameters among the ranks that hold the same parameters. Each rank has
// updated its part of them.
struct GatherUpdated {
  int unit, parameters;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// In-place all-gather of a unit's fp32 gradient sums among the ranks that hold the same sums. Each rank has summed its
// shard.
struct GatherSums {
  int unit, sum;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
