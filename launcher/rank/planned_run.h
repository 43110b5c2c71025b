#pragma once
#include <functional>

#include "base/note.h"
#include "comm/communicator.h"
#include "runtime/data/open_data.h"
#include "runtime/job/make_job.h"
#include "runtime/job/seat.h"

namespace strata::launcher {

// What the ranks of a command run: all have the same plan, and it fits.
struct PlannedRun {
  runtime::Seat seat;          // of this rank
  runtime::Capacity capacity;  // the least over the ranks, so that all plan alike
  runtime::OpenedData data;    // as far as the plan had to know of it, for who runs the job
  runtime::Job job;            // of the settled workload
};

struct RunPlanning {
  runtime::Purpose purpose = runtime::Purpose::train;
  bool looks_at_data = true;  // that it reads; a generation reads none
  // Called between settling the recipe and planning it, on all ranks alike.
  std::function<void(runtime::Workload&, const runtime::Capacity&)> adjust = {};
};

// Before anything else is said or opened: that the data files which a command reads are there, and token files.
// `trains`: data.train, too. Collective; throws AgreedError.
void require_data(const runtime::Recipe& recipe, bool trains, comm::World& world);

// Makes a recipe that all ranks have (read_recipe) into a job: seats, capacity, objective, data, micro-batch, plan.
// Collective; a mistake that all make is thrown alike on all as AgreedError, and printed once: Error{does_not_fit} with
// what would fit, and what the ranks have otherwise than rank 0.
PlannedRun plan_run(const runtime::Recipe& recipe, comm::World& world, const RunPlanning& planning = {});
// The same, if the model's description was opened before.
PlannedRun plan_run(runtime::Workload workload, comm::World& world, const RunPlanning& planning = {});

// The same of a training that is planned here and run elsewhere, or another day, without ranks. Its data may be there:
// what cannot be looked at is told to `note`, and not counted. Returns what was opened.
runtime::OpenedData settle_as_far_as_seen(runtime::Workload& workload, const Note& note);
// Replaces training.micro_batch_size = auto by a number (runtime/job/micro_batch.h), and says which.
void settle_batch(runtime::Workload& workload, int ranks, device::Device device);

}  // namespace strata::launcher
