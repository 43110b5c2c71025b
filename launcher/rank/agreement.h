#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "runtime/job/make_job.h"

namespace strata::launcher {

// What ranks settle before they take memory. Collective; a mistake that all make is thrown alike on all as AgreedError,
// and printed once.

// The recipe, which must be the same on all ranks; `trains`: with what only train needs.
runtime::Recipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                            comm::World& world, bool trains = true);

// What this rank computes on. Left to itself the run takes GPUs only if every rank has one.
runtime::Seat agree_on_seat(const runtime::Recipe& recipe, comm::World& world);

// Settles training.micro_batch_size = auto by the data and checkpoints that rank 0 sees, for a training on these ranks,
// and says what it came to; before settle_data(), which says what is wrong with data.
void agree_on_micro_batch(runtime::Recipe& recipe, const runtime::Seat& seat, comm::World& world);

// The least capacities over the ranks, so that all plan alike; of this rank's seat.
runtime::Capacity agree_on_capacity(const runtime::Recipe& recipe, const runtime::Seat& seat, comm::World& world);

// Throws Error{does_not_fit} with what would fit.
runtime::Job plan_job(const runtime::Recipe& recipe, const runtime::Capacity& capacity, comm::World& world,
                      runtime::Purpose purpose = runtime::Purpose::train);

// Ranks on other nodes may read another config.json, or have another number of cores.
void require_same_plan(const runtime::Job& job, comm::World& world);

}  // namespace strata::launcher
