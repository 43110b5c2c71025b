#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/host/host.h"
#include "comm/communicator.h"

namespace strata::launcher {

// Binds this process to its share of the node's cores that mpirun or Slurm's daemon may use. Rank `node_rank` of
// `node_size` gets neighbouring cores (of one NUMA node if they fit); a single rank gets all cores. Undoes mpirun's own
// binding, which gives only one core to a rank with several threads. Binds nothing if there are more ranks than cores.
// Returns the number of cores, limited by a quota and by the processors of a Slurm job.
struct CoreShare {
  int cores;
  std::string note;  // what was done, for the report
};
CoreShare bind_cores(int node_rank, int node_size);

// Limits the share to the rank's part of a quota of processor time, such as a container's (cpu_quota), because more
// threads would only wait for it. `limit`: the source of the quota, for the note.
CoreShare within_quota(CoreShare share, std::optional<double> quota, int node_rank, int node_size,
                       std::string_view limit);
// The processors of each node in SLURM_JOB_CPUS_PER_NODE ("16", "16(x2)"); nullopt if they differ between nodes.
std::optional<double> slurm_processors(std::string_view text);

// "1 thread per rank (1 core each)", for all ranks, whose shares may differ. Collective.
std::string threads_text(const CoreShare& share, int threads, comm::World& world);
// A note if device.threads starts more threads on a rank than it has cores; empty otherwise. `asked`: device.threads,
// if the user set it. Collective.
std::string oversubscription_text(const CoreShare& share, std::optional<std::int64_t> asked, comm::World& world);
// The cores of this machine, limited by the quota but not by the binding of this process.
int cores_here(const std::optional<double>& quota = cpu_quota());

}  // namespace strata::launcher
