#pragma once
// launcher/rank/ has what a command needs to run as one of several ranks: connecting and ending together (here),
// agreeing on recipe, plan and capacity (planned_run.h), its share of the cores (cores.h), and requests to stop
// (stop_signal.h).
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::launcher {

// Connects this process to the other ranks according to the recipe's comm.* keys, calls run(world), and returns the
// exit code. An exception in run() ends all ranks. Rank 0 prints an AgreedError; the rank that failed first prints any
// other error. `name`: how messages name a rank, by default "rank 5".
int run_as_rank(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                const std::function<void(comm::World&)>& run, const std::function<std::string(int)>& name = {});

// Replaces "rank 5" at the beginning of a rank's `cause`, if it is there, with `name`, such as "rank 5 (stage 1)".
std::string with_name(std::string_view cause, int rank, std::string_view name);

// Ends a program whose command line is wrong, possibly on this rank only. Notifies the other ranks, which may be
// waiting, and prints the error once. Returns the exit code.
int refuse_as_rank(const Error& error);

// The variables of mpirun or srun may outlive a rank, in a shell that the rank started or in a copied environment. If
// no program that starts ranks is among this process's ancestors, returns the variable that makes it a rank, such as
// "OMPI_COMM_WORLD_RANK=3"; otherwise empty.
std::string left_over_rank();

// Whether a program with this name (as in /proc/PID/comm) starts ranks, here or on other nodes.
bool starts_ranks(const std::string& name);

}  // namespace strata::launcher
