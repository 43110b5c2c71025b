#pragma once
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// Copies between two tiers that lie beside each other, all in one direction: an upload, download, read or write.
struct Copy {
  struct Pair {
    Slice from, to;  // as many bytes; or two whole buffers (0 bytes), which the figures of a step do not count
  };
  int unit;  // -1: none
  std::vector<Pair> pairs;
  bool border = false;  // of what the host writes and reads between two steps

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
