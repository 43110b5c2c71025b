#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/ranks/allocation.h"

namespace strata::launcher {

// How the ranks of one start are started.
struct RankStart {
  std::vector<Share> shares;
  std::vector<std::string> words;        // strata's own, from its command on
  std::vector<std::string> variables;    // names that go to every rank
  std::string run;                       // their STRATA_LAUNCH
  std::optional<std::string> interface;  // of MPI and NCCL
  bool interface_asked = false;          // else a variable of the user's that names one wins
  bool again = false;                    // not the first start of this launch
  std::string resume = "auto";           // checkpoint.resume as the user has it
};

// The variables of this process that name or exclude networks of MPI and NCCL, NAME=VALUE.
std::vector<std::string> interface_variables();

// The command line of mpirun or srun, whose lines RankOutput reads.
Program rank_program(const Allocation& allocation, const RankStart& start);

}  // namespace strata::launcher
