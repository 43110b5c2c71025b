#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/ranks/allocation.h"
#include "runtime/plan/layout/mesh.h"

namespace strata::launcher {

// How the ranks of one start are started.
struct RankStart {
  std::vector<Share> shares;
  std::vector<std::string> words;        // strata's arguments, from its command on
  std::vector<std::string> variables;    // names of variables that go to every rank
  std::string run;                       // the ranks' STRATA_LAUNCH
  std::optional<std::string> interface;  // the interface of MPI and NCCL
  bool interface_asked = false;          // otherwise a user's variable that names an interface takes precedence
  bool again = false;                    // not the first start of this launch
  std::string resume = "auto";           // checkpoint.resume as the user set it
  runtime::Mesh mesh = {};               // the mesh by which messages name ranks
};

// The command line of mpirun or srun. RankOutput reads its output.
Program rank_program(const Allocation& allocation, const RankStart& start);

// The variables of this process that select or exclude networks for MPI and NCCL, as NAME=VALUE.
std::vector<std::string> interface_variables();

// Names of this process's variables that go to every rank: STRATA_*, NCCL_*, LD_LIBRARY_PATH and the names in --env.
// OMPI_* reach them without this. `named`: the values of --env, NAME or NAME=VALUE; a NAME=VALUE is set in this
// process. Throws Error{usage} if a NAME is not set or is no name.
std::vector<std::string> forwarded_names(const std::vector<std::string>& named);

// The variables that programs on a node need to start and to behave like this one: STRATA_* and LD_LIBRARY_PATH, as
// NAME=VALUE.
std::vector<std::string> agent_environment();

}  // namespace strata::launcher
