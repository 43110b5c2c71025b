#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "base/note.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/job/make_job.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// Fills this rank's parameters and state from a checkpoint of any number of ranks and any placement: reads and verifies
// the blocks it needs, on `threads` threads. Throws Error{corrupt}, Error{failed}.
void load_state(const Checkpoint& checkpoint, const Job& job, Executor& executor, int rank, int threads,
                const Advance& advance = {});

// Where the run resumes, in micro-batches of the job's size. Throws Error{usage} if the checkpoint's run cannot go
// on as this job: another model, data order, seed, ..., naming key and both values.
Progress progress_under(const Manifest& manifest, const std::filesystem::path& path, const Job& job);

// A sentence on a schedule that is not the checkpoint's run's: what changed and how the learning rate jumps at the step
// that comes next; empty where it does not.
std::string schedule_change(const Manifest& manifest, const Recipe& recipe, std::int64_t steps_done);

// Where a run starts.
struct Start {
  std::optional<std::filesystem::path> from;   // the checkpoint; nullopt: from the start
  std::vector<std::filesystem::path> damaged;  // newer ones that were passed over: CheckpointFolder::pass_over()
};

// Loads what checkpoint.resume names: the newest whole checkpoint of checkpoint.dir or of the folder that it names, or
// a given one; else the initial weights. `note` is told, on rank 0, which damaged ones were passed over and why. Throws
// AgreedError{corrupt} if there are checkpoints and none is whole: only resume = "none" starts over; {failed} if one
// cannot be read, which is no damage. Collective.
Start start_or_resume(Trainer& trainer, const Job& job, comm::World& world, int threads, const Note& note,
                      const Advance& advance = {});

}  // namespace strata::runtime
