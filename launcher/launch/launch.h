// launcher/launch/ starts a run's ranks on one or many nodes by mpirun or srun, and restarts them on the remaining
// nodes when they fail. It is no scheduler: nodes come from Slurm, an MPIJob or --hosts. Read next: launch.cc for the
// order of things, attempt.h for one start, restart.h for what follows it, preflight.h for what precedes it,
// node/agent.h for what runs on every node.
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
  std::vector<std::string> command;  // the words after --
};

// Returns the exit code of the last run; throws Error.
int launch(const LaunchOptions& options);

}  // namespace strata::launcher
