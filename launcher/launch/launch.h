// launcher/launch/ starts the ranks of a run on one or many nodes by mpirun or srun, and starts them again, on the
// nodes that are left, when they fail. It is no scheduler: nodes come from Slurm, from an MPIJob or from --hosts. Open
// next: launch.cc for the order of things, attempt.h for one start, restart.h for what comes after it, preflight.h for
// what comes before, node/agent.h for what runs on every node.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct LaunchOptions {
  std::optional<std::string> hosts;
  std::optional<int> ranks_per_node, max_restarts, min_nodes;
  std::optional<std::filesystem::path> logs;
  std::vector<std::string> env;
  std::optional<std::string> interface;
  bool preflight = true;
  std::vector<std::string> command;  // what stands behind --
};

// Returns the exit code of the last run; throws Error.
int launch(const LaunchOptions& options);

}  // namespace strata::launcher
