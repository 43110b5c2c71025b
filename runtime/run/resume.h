#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/execute/executor.h"
#include "runtime/job/make_job.h"
#include "runtime/plan/job.h"
#include "runtime/recipe/recipe.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// The progress that the run resumes from, in micro-batches of the job's size. Throws Error{usage}, with the key and
// both values, if the checkpoint's run cannot continue as this job: another model, data order, seed and so on.
// `validation_hash`: of this run (Trainer::validation_hash).
Progress progress_under(const Manifest& manifest, const std::filesystem::path& path, const Job& job,
                        const std::string& validation_hash);

// A sentence about a schedule that differs from the schedule of the checkpoint's run: what changed, and how the
// learning rate jumps at the next step; empty if it does not.
std::string schedule_change(const Manifest& manifest, const Recipe& recipe, std::int64_t steps_done);

// A sentence about settings that may differ from the checkpoint's run, but give different bits: its data, precision,
// batch, and optimizer settings; empty if none does. `data_hash`: of this run (Trainer::data_hash).
std::string other_settings(const Manifest& manifest, const Job& job, const std::string& data_hash);

// The start of a run.
struct Start {
  std::optional<std::filesystem::path> from;   // the checkpoint; nullopt: the initial weights
  std::vector<std::filesystem::path> damaged;  // newer ones that were passed over: CheckpointFolder::pass_over()
};

// Loads what checkpoint.resume selects: the newest undamaged checkpoint in checkpoint.dir or in the folder that it
// names, or a particular one; otherwise the initial weights. On rank 0, `note` receives the damaged ones that were
// passed over, with the reasons. Throws AgreedError{corrupt} if there are checkpoints but all are damaged (only resume
// = "none" starts over), or {failed} if one cannot be read, which does not count as damage. Collective.
Start start_or_resume(Trainer& trainer, const Job& job, comm::World& world, int threads, const Note& note,
                      const Advance& advance = {});

// parallel.tensor_shards of the run that wrote the checkpoint; 1 if its recipe has none.
std::int64_t shards_of(const Manifest& manifest);

// Fills this rank's parameters and state from a checkpoint that was written with any number of ranks and any placement.
// Reads and verifies the blocks that it needs, on `threads` threads. Throws Error{corrupt}, Error{failed}.
void load_state(const Checkpoint& checkpoint, const Job& job, Executor& executor, int rank, int threads,
                const Advance& advance);

// Predicts, as far as the plan depends on it, where a training run will begin: after the checkpoint that
// start_or_resume() will choose. Reads manifests, and on `threads` threads also a whole checkpoint if it has no
// evaluation but an older one has, because the run resumes from that if the newer one is damaged. Checkpoints that
// cannot be read are left to start_or_resume().
StartPoint predict_start(const Recipe& recipe, int threads);

// Why a training run with this job could not resume from its checkpoint, in the words of progress_under(); empty if it
// could, or if no checkpoint can be read.
std::string refused_by_checkpoint(const Job& job);

// parallel.tensor_shards of the newest checkpoint that the recipe resumes from; 0: there is none, or it cannot be read.
std::int64_t resumed_shards(const Recipe& recipe);
// The shards that a run takes from the checkpoint (`shards`: resumed_shards), because they are part of the numerics:
// nullopt if it has none or the recipe names some. Throws Error{usage} if the parallel.tensor ranks of a training run
// cannot share them.
std::optional<std::int64_t> shards_to_take(const Recipe& recipe, std::int64_t shards, Purpose purpose = Purpose::train);

}  // namespace strata::runtime
