#pragma once
#include "base/advance.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

// Fills this rank's parameters and state from a checkpoint that was written with any number of ranks and any placement.
// Reads and verifies the blocks that it needs, on `threads` threads. Throws Error{corrupt}, Error{failed}.
void load_state(const Checkpoint& checkpoint, const Job& job, Executor& executor, int rank, int threads,
                const Advance& advance);

}  // namespace strata::runtime
