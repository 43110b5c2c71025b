#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// If the ranks that share a layer divide the rows of the residual stream (parallel.sequence), these tasks convert
// between a rank's rows and all rows. Matrices are [tokens, hidden] in the compute dtype.

// Puts together matrices of which each rank has its rows (an all-gather): at a seam of a call; or, with stretch -1,
// the input of a unit that takes all rows.
struct GatherRows {
  int unit, micro_batch;
  int stretch = -1;       // of the call: the one that the seam follows
  bool backward = false;  // of a backward
  std::size_t matrices = 1;
  int rows, whole;  // buffers of rows_bytes(...) and whole_bytes(...)

  static std::size_t rows_bytes(const Draft& draft, std::size_t matrices = 1);
  static std::size_t whole_bytes(const Draft& draft, std::size_t matrices = 1);
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Copies this rank's rows of what a unit made of all rows.
struct TakeRows {
  int unit, micro_batch;
  int whole, rows;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
