#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Converts the quantised parameters of a unit, or of one of its parts, to the compute dtype.
struct Unpack {
  UnitPart which;
  Slice quantised;
  int unpacked;  // buffer

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
