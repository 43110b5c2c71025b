#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "runtime/job/seat.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// What ranks agree on before they plan a run (planned_run.h). Collective; a mistake that all make is thrown alike on
// all as AgreedError, and printed once.

// The recipe, which must be the same on all ranks; `trains`: with what only train needs.
runtime::Recipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                            comm::World& world, bool trains = true);

// What this rank computes on. Left to itself the run takes GPUs only if every rank has one.
runtime::Seat agree_on_seat(const runtime::Recipe& recipe, comm::World& world);

}  // namespace strata::launcher
