#pragma once
// launcher/launch/ranks/ performs one start of all ranks (here): with mpirun or srun (allocation.h), the command line
// and variables (rank_program.h), and the output of the ranks (rank_output.h).
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/agents.h"
#include "launcher/launch/ranks/rank_output.h"
#include "launcher/launch/ranks/rank_program.h"

namespace strata::launcher {

// While this object exists, signals that ask for a stop (TERM, INT, USR1, HUP) are counted and do not end the process,
// and Ctrl-Z does nothing. At most one may exist at a time.
class StopSignalCounter {
 public:
  StopSignalCounter();
  StopSignalCounter(const StopSignalCounter&) = delete;
  StopSignalCounter& operator=(const StopSignalCounter&) = delete;
  int count() const;
};

// How one start of the ranks ended.
struct Outcome {
  int code = 0;                   // one of the program's exit codes
  std::string cause;              // one sentence; empty if there was no error
  bool printed = false;           // whether a rank printed the cause, as the last thing on the screen
  std::vector<std::string> lost;  // nodes that no longer respond
  std::vector<std::string> held;  // nodes with a rank that cannot be ended because it waits for a device
  EndReason reason;               // given by a rank
};

// Starts the ranks and returns when none is left. Forwards requests to stop; a second request ends the ranks
// immediately. If a node is lost, or if ranks remain after one has ended with an error, launch asks the others to stop
// and ends them, which counts as a failure and not as a stop. Before it returns, it ends the remaining processes on
// nodes that respond, if possible.
Outcome run_ranks(const Allocation& allocation, const RankStart& start, Agents& agents, const StopSignalCounter& stop,
                  LaunchScreen& screen, const std::optional<std::filesystem::path>& logs);

}  // namespace strata::launcher
