#pragma once
// launcher/launch/ranks/ is one start of all ranks (here): by mpirun or srun (allocation.h), with which environment,
// and what becomes of what they print.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/agents.h"
#include "launcher/launch/ranks/rank_output.h"
#include "launcher/launch/ranks/rank_program.h"

namespace strata::launcher {

// While one lives, signals that ask for a stop (TERM, INT, USR1, HUP) are counted instead of ending the process, and
// Ctrl-Z does nothing. At most one at a time.
class AskedToStop {
 public:
  AskedToStop();
  AskedToStop(const AskedToStop&) = delete;
  AskedToStop& operator=(const AskedToStop&) = delete;
  int times() const;
};

// How one start of the ranks ended.
struct Ended {
  int code = 0;                   // of the program's exit codes
  std::string cause;              // one sentence; empty if all went well
  bool told = false;              // a rank has said it: it is the last thing on the screen
  std::vector<std::string> lost;  // nodes that do not answer any more
  std::vector<std::string> held;  // nodes on which a rank cannot be ended, as it waits for a device
  EndReason reason;               // that a rank gave
};

// Starts the ranks and returns when none is left. Requests to stop go on to them, and a second one ends them. If a node
// is lost the others' ranks are ended, and so they are if a rank's last words do not end them all: that is a failure
// and no stop, though the ranks are asked to stop for it. Whatever is left on nodes that answer is ended before it
// returns, if it can be.
Ended run_ranks(const Allocation& allocation, const RankStart& start, Agents& agents, const AskedToStop& stop,
                LaunchScreen& screen, const std::optional<std::filesystem::path>& logs);

}  // namespace strata::launcher
