#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/hosts.h"
#include "launcher/launch/ranks/child.h"

namespace strata::launcher {

// What starts the ranks: mpirun of Open MPI 4, mpirun of Open MPI 5 (which is PRRTE's prterun, with options and
// messages of its own), or Slurm's srun.
enum class Starter : std::uint8_t { mpirun, prterun, srun };
// The program to start: "mpirun" or "srun".
std::string_view program_of(Starter starter);
// Of what `mpirun --version` says.
Starter starter_of(std::string_view version);

// The nodes that launch may use, and how programs get there.
struct Allocation {
  std::vector<Host> hosts;
  std::string origin;        // "Slurm job 12", "--hosts", "the MPIJob's hostfile", "this machine"
  std::optional<int> ranks;  // that it was asked for (sbatch --ntasks); nullopt: as many as there is room for
  Starter starter = Starter::mpirun;
  std::string why_not_srun;  // inside Slurm with mpirun: the reason
  bool in_slurm = false;     // programs reach other nodes by srun, else by ssh
};

// What this process was started in: a Slurm allocation, an MPIJob (Kubeflow), else --hosts, else this machine alone.
// Throws Error{usage} if --hosts is not understood, or names nodes without an address or outside the allocation.
Allocation find_allocation(const std::optional<std::string>& hosts);

// "2(x3),1" of Slurm's variables as 2 2 2 1; empty if it is not understood.
std::vector<int> per_node(std::string_view text);

// Ranks on a node.
struct Share {
  std::string host;
  int ranks;

  bool operator==(const Share&) const = default;
};

// `ranks` ranks over these nodes, as evenly as their slots allow, earlier nodes first; empty if there is no room.
// Hosts without slots have room for `room`.
std::vector<Share> spread(const std::vector<Host>& hosts, int ranks, int room);
int total(const std::vector<Share>& shares);
// How many ranks a node with so many GPUs for them takes: as many as it has slots for, else one per GPU, or one. Slots
// that are processors are room for one rank per GPU, or, without GPUs, for one rank per processor.
int ranks_on(const Host& host, std::size_t gpus);
// "n1 (2), n2 (2)"; long lists are cut.
std::string describe(const std::vector<Share>& shares);

// A program of this machine's `words` on a node of the allocation, with these variables set there (NAME=VALUE), in this
// process's folder.
Program on_node(const Allocation& allocation, const std::string& host, const std::vector<std::string>& words,
                const std::vector<std::string>& variables, bool listens);

// What the user has mpirun reach other nodes with, in Open MPI's variables; empty: ssh.
std::string remote_shell_agent();

// Why a program of ours did not come to run on a node, from what ssh or srun said, as a sentence that says what to do.
std::string why_not_reached(const std::string& host, std::string_view said, std::optional<int> code);

}  // namespace strata::launcher
