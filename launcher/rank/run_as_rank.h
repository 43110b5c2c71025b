#pragma once
// launcher/rank/ is what a command does as one of several ranks: connecting and ending together (here), agreeing on
// recipe, plan and capacity (agreement.h), its share of the cores (cores.h), and being asked to stop (stop_signal.h).
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::launcher {

// Connects this process to the other ranks as the recipe (read for its comm.* keys alone) says, calls run(world) and
// returns the exit code. What run throws ends all ranks: an AgreedError is printed by rank 0, anything else by the rank
// that failed first.
int run_as_rank(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                const std::function<void(comm::World&)>& run);

// Ends a program whose command line is wrong, perhaps on this rank alone: the others, which may wait for it, are told,
// and it is said once. Returns the exit code.
int refuse_as_rank(const Error& error);

// What mpirun or srun sets in the environment of a rank may outlive it: in a shell that a rank has started, in a copied
// environment. Says which variable makes this process a rank though no program that starts ranks is among its
// ancestors, "OMPI_COMM_WORLD_RANK=3"; empty if one is, or if nothing makes it a rank.
std::string left_over_rank();

// Whether a program of this name (as in /proc/PID/comm) starts ranks, itself or on a node.
bool starts_ranks(const std::string& name);

}  // namespace strata::launcher
