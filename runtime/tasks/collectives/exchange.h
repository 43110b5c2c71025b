#pragma once
#include <optional>

#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// Adds the partial sums that ranks which share a unit's layers left at a seam of a call, by a balanced binary tree in
// the order of the ranks, and the seam's bias; rounds once, to the compute dtype. Each rank adds a range of rows of all
// partial sums (an all-to-all of fp32) and sends it to the others (an all-gather), unless each needs only its own rows.
// If the seam gathers, there is only the all-gather, of fp32.
struct Exchange {
  int unit, micro_batch;
  int stretch;    // of the call: the one that the seam follows
  bool backward;  // of a backward
  models::Seam seam;
  int partial, total;                // buffers of partial_bytes(...) and total_bytes(...)
  int parameters = -1, frozen = -1;  // the unit's pools, of which one has the bias

  static std::size_t partial_bytes(const Draft& draft, const models::Seam& seam);
  static std::size_t total_bytes(const Draft& draft, const models::Seam& seam);
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
