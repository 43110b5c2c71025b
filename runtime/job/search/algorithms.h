#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "device/algorithm_table.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

// Returns the algorithm of each of the job's products, the same on all ranks. Rank 0 reads the file kept for its kind
// of GPU, times the products that the file lacks (note() says so), adds them to the file and sends the table to all
// ranks. Null on the CPU, which has no choice of algorithms. Collective; call it before the executor takes its memory.
// Throws AgreedError if ranks have different kinds of GPU, because the bits would then depend on the distribution of
// the work.
std::shared_ptr<const device::AlgorithmTable> agree_on_algorithms(const Job& job, comm::World& world,
                                                                  const std::function<void(const std::string&)>& note);

// Uses the algorithms in a checkpoint's manifest if they were chosen on the same kind of GPU and versions; otherwise
// note() says that they were not.
void use_saved_algorithms(Executor& executor, const std::string& saved, const std::string& origin,
                          const std::function<void(const std::string&)>& note);

}  // namespace strata::runtime
