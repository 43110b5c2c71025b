#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Copies in one direction between two neighbouring tiers: an upload, download, read or write.
struct Copy {
  struct Pair {
    Slice from, to;  // slices of equal size, or two whole buffers (0 bytes), which are not counted in the step's totals
  };
  int unit;  // -1: none
  std::vector<Pair> pairs;
  bool boundary = false;  // copies of what the host writes and reads between two steps

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
