#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/job/capacity.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// Values on which ranks agree, mainly before they plan a run (planned_run.h). Collective. A mistake that all ranks make
// is thrown on all of them as AgreedError, and printed once.

// Reads the recipe, which must be the same on all ranks. `trains`: also requires the keys that only train needs.
runtime::Recipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                            comm::World& world, bool trains = true);

// The device that this rank computes on. If the recipe leaves the choice open, the run takes GPUs only if every rank
// has one.
runtime::Seat agree_on_seat(const runtime::Recipe& recipe, comm::World& world);

// Whether any rank was asked to stop.
bool any_rank_stops(const StopSignal& stop, comm::World& world);

}  // namespace strata::launcher
