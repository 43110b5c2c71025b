#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/data/open_data.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// How ranks agree before they plan a run. The functions are collective. A mistake that all ranks make is thrown on all
// of them as AgreedError, and printed once.

// Reads the recipe, which must be the same on all ranks. `trains`: also requires the keys that only train needs.
runtime::LoadedRecipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                                  comm::World& world, bool trains = true);

// The device that this rank computes on. If the recipe leaves the choice open, GPUs are used only if all ranks have
// one.
runtime::RankDevice agree_on_rank_device(const runtime::Recipe& recipe, comm::World& world);

// The job that the ranks of a command run. All ranks have the same plan, and it fits.
struct PlannedRun {
  runtime::RankDevice rank_device;  // this rank's
  runtime::Capacity capacity;       // the minimum over the ranks, so that all of them make the same plan
  runtime::OpenedData data;         // the data as planning opened it, for the code that runs the job
  runtime::Job job;                 // made from the resolved workload
};

struct RunPlanning {
  runtime::Purpose purpose = runtime::Purpose::train;
  bool looks_at_data = true;  // false for a generation, which reads no data
  // Called on every rank, after the recipe is resolved and before it is planned.
  std::function<void(runtime::Workload&, const runtime::Capacity&)> adjust = {};
};

// Checks, before anything else is printed or opened, that the data files read by a command exist and are token files.
// `trains`: including data.train. Collective; throws AgreedError.
void require_data(const runtime::Recipe& recipe, bool trains, comm::World& world);

// Turns a recipe that all ranks have (read_recipe) into a job: devices, capacity, objective, data, micro-batch, plan.
// Collective. Throws AgreedError on all ranks, which is printed once: Exit::does_not_fit with settings that would fit,
// tokens of another tokenizer than the model's, or the values of other ranks that differ from those of rank 0.
PlannedRun plan_run(const runtime::Recipe& recipe, comm::World& world, const RunPlanning& planning = {});
// Like above, for a model whose description has already been opened.
PlannedRun plan_run(runtime::Workload workload, comm::World& world, const RunPlanning& planning = {});

// For a command that does not train: each rank computes the whole model, so parallel.* needs to fit neither the ranks
// nor the checkpoint's virtual shards, which stay part of the numerics. Returns a sentence per key that has no effect.
std::vector<std::string> notes_of_degrees(const runtime::Recipe::Parallel& parallel);

// Like above, for training that is planned here but runs elsewhere or later, without ranks. Data that cannot be read
// here is reported to `note` and not counted. Returns what was opened. Throws Error{usage} if all files are here and
// the recipe requires something that they lack.
runtime::OpenedData resolve_visible_data(runtime::Workload& workload, const Note& note);
// Returns the number for training.micro_batch_size (runtime/job/search/micro_batch.h), and prints how it was chosen.
std::int64_t resolve_batch(const runtime::Workload& workload, int ranks, device::Device device);

}  // namespace strata::launcher
