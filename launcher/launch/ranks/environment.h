#pragma once
#include <string>
#include <vector>

namespace strata::launcher {

// Names of this process's variables that go to every rank: STRATA_*, NCCL_*, LD_LIBRARY_PATH and those of --env. OMPI_*
// go there by themselves. `named`: the values of --env, NAME or NAME=VALUE; the latter is set in this process. Throws
// Error{usage} if a NAME is not set or is no name.
std::vector<std::string> forwarded_names(const std::vector<std::string>& named);

// The variables that programs on a node need to start and to behave like this one: STRATA_* and LD_LIBRARY_PATH, as
// NAME=VALUE.
std::vector<std::string> agent_environment();

}  // namespace strata::launcher
