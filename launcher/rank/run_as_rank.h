#pragma once
// launcher/rank/ has what a command needs as one of several ranks: connecting and ending together (here), agreeing on
// recipe, plan and capacity (planned_run.h), its share of the cores (cores.h), and requests to stop (stop_signal.h).
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::launcher {

// Connects this process to the other ranks as the recipe's comm.* keys say, calls run(world), and returns the exit
// code. An exception in run ends all ranks: rank 0 prints an AgreedError, and the rank that failed first prints
// anything else. `name`: how messages name a rank, "rank 5" if it is not given.
int run_as_rank(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                const std::function<void(comm::World&)>& run, const std::function<std::string(int)>& name = {});

// Replaces "rank 5" at the beginning of a rank's `cause`, if it is there, by `name`, such as "rank 5 (stage 1)".
std::string with_name(std::string_view cause, int rank, std::string_view name);

// Ends a program whose command line is wrong, perhaps on this rank only. Notifies the other ranks, which may be
// waiting, and prints the error once. Returns the exit code.
int refuse_as_rank(const Error& error);

// mpirun's or srun's variables may outlive a rank: in a shell that the rank started, or in a copied environment.
// Returns the variable that makes this process a rank, "OMPI_COMM_WORLD_RANK=3", if no program that starts ranks is
// among its ancestors; otherwise empty.
std::string left_over_rank();

// Whether a program of this name (as in /proc/PID/comm) starts ranks, here or on other nodes.
bool starts_ranks(const std::string& name);

}  // namespace strata::launcher
