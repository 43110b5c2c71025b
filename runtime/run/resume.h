#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/job/job.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// Fills this rank's parameters and state from a checkpoint of any number of ranks and any placement: reads and verifies
// the blocks it needs, on `threads` threads. Throws Error{corrupt}, Error{failed}.
void load_state(const Checkpoint& checkpoint, const Job& job, Executor& executor, int rank, int threads);

// Where the run goes on, in micro-batches of the job's size. Throws Error{usage} where the checkpoint's run cannot go
// on as this job: another model, data order, seed, ..., naming key and both values.
Progress progress_under(const Manifest& manifest, const std::filesystem::path& path, const Job& job);

// Loads what checkpoint.resume names: the newest checkpoint of checkpoint.dir that is whole, or a given one; else the
// initial weights. `note` is told, on rank 0, which damaged ones were passed over and why. Returns the checkpoint's
// path; nullopt: from the start. Collective; throws AgreedError.
std::optional<std::filesystem::path> start_or_resume(Trainer& trainer, const Job& job, comm::World& world, int threads,
                                                     const std::function<void(const std::string&)>& note);

}  // namespace strata::runtime
