#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "device/algorithm_table.h"
#include "runtime/execute/executor.h"
#include "runtime/job/make_job.h"

namespace strata::runtime {

// The algorithm of each of the job's products, the same on all ranks: rank 0 takes them from the file kept for its kind
// of GPU, times those that the file lacks (note() says so), keeps them there, and sends them round. Null if there is
// nothing to choose: on the CPU. Collective, before the executor takes its memory.
// Throws AgreedError if ranks have GPUs of different kinds: their bits would depend on which rank computes what.
std::shared_ptr<const device::AlgorithmTable> agree_on_algorithms(const Job& job, comm::World& world,
                                                                  const std::function<void(const std::string&)>& note);

// Goes on with the algorithms of a checkpoint, as its manifest has them, where they are for the same kind of GPU and
// versions; note() says so where they are not.
void use_saved_algorithms(Executor& executor, const std::string& saved, const std::string& origin,
                          const std::function<void(const std::string&)>& note);

}  // namespace strata::runtime
