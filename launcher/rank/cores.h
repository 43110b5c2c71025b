#pragma once
#include <optional>
#include <string>

#include "base/host/cpu_quota.h"
#include "comm/communicator.h"

namespace strata::launcher {

// Binds this process to its share of the node's cores: rank `node_rank` of `node_size` gets a run of neighbouring
// ones (so of one NUMA node if they fit), all of them if a rank is alone. Undoes mpirun's own binding, which
// gives a rank of several threads one core. With more ranks than cores nothing is bound. Returns how many cores,
// which a quota bounds.
struct CoreShare {
  int cores;
  std::string note;  // what was done, for the report
};
CoreShare bind_cores(int node_rank, int node_size);

// At most the rank's share of a quota of processor time, as a container's (cpu_quota); more threads would wait for it.
CoreShare within_quota(CoreShare share, std::optional<double> quota, int node_rank, int node_size);

// "1 thread per rank (1 core each)": of all ranks, which may have different shares. Collective.
std::string threads_text(const CoreShare& share, int threads, comm::World& world);
// Of this machine, whatever this process is bound to, as far as a quota has the time for them.
int cores_here(const std::optional<double>& quota = cpu_quota());

}  // namespace strata::launcher
