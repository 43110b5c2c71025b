#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// Adds the partial sums of the ranks that share a unit's layers, at a seam of a call, by a balanced binary tree in the
// order of the ranks; then adds the seam's bias and rounds once, to the compute dtype. Each rank adds a range of rows
// of all partial sums (an all-to-all of fp32) and sends it to the others (an all-gather), unless each needs only its
// own rows. If the seam gathers, there is only the all-gather, of fp32.
struct Exchange {
  int unit, micro_batch;
  int stretch;    // the stretch of the call that the seam follows
  bool backward;  // whether the call is a backward
  models::Seam seam;
  int partial, total;                // buffers of partial_bytes(...) and total_bytes(...)
  int parameters = -1, frozen = -1;  // the unit's pools; one of them has the bias

  static std::size_t partial_bytes(const Draft& draft, const models::Seam& seam);
  static std::size_t total_bytes(const Draft& draft, const models::Seam& seam);
  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// If the ranks that share a layer divide the rows of the residual stream (parallel.sequence), these tasks convert
// between a rank's rows and all rows. Matrices are [tokens, hidden] in the compute dtype.

// Assembles matrices from the ranks' rows (an all-gather): at a seam of a call or, with stretch -1, the input of a unit
// that takes all rows.
struct GatherRows {
  int unit, micro_batch;
  int stretch = -1;       // the stretch of the call that the seam follows
  bool backward = false;  // whether the call is a backward
  std::size_t matrices = 1;
  int rows, full;  // buffers of rows_bytes(...) and full_bytes(...)

  static std::size_t rows_bytes(const Draft& draft, std::size_t matrices = 1);
  static std::size_t full_bytes(const Draft& draft, std::size_t matrices = 1);
  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// Copies this rank's rows of a unit's result for all rows.
struct TakeRows {
  int unit, micro_batch;
  int full, rows;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
