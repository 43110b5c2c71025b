#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/ranks/allocation.h"
#include "runtime/plan/layout/mesh.h"

namespace strata::launcher {

// How to start the ranks of one start.
struct RankStart {
  std::vector<Share> shares;
  std::vector<std::string> words;        // strata's arguments, starting with the command
  std::vector<std::string> variables;    // the names of variables that are passed to every rank
  std::string run;                       // the value of STRATA_LAUNCH in the ranks
  std::optional<std::string> interface;  // the interface for MPI and NCCL
  bool interface_asked = false;          // --interface was given; otherwise a variable of the user that names an
                                         // interface takes precedence
  bool again = false;                    // not the first start of this launch
  std::string resume = "auto";           // checkpoint.resume as the user set it
  runtime::Mesh mesh = {};               // the mesh with which messages name ranks
};

// The command line of mpirun or srun. RankOutput reads its output.
Program rank_program(const Allocation& allocation, const RankStart& start);

// Variables of this process that select or exclude networks for MPI and NCCL, as NAME=VALUE.
std::vector<std::string> interface_variables();

// The names of this process's variables that are passed to every rank: STRATA_*, NCCL_*, LD_LIBRARY_PATH, and those in
// --env. OMPI_* reach the ranks without this. `named`: the values of --env, NAME or NAME=VALUE; NAME=VALUE sets the
// variable in this process. Throws Error{usage} if a NAME is not set or is invalid.
std::vector<std::string> forwarded_names(const std::vector<std::string>& named);

// The variables, as NAME=VALUE, that a program on a node needs to start and to behave like this one: STRATA_* and
// LD_LIBRARY_PATH.
std::vector<std::string> agent_environment();

}  // namespace strata::launcher
