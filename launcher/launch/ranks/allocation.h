#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/hosts.h"
#include "launcher/launch/ranks/child.h"

namespace strata::launcher {

// The program that starts the ranks: mpirun of Open MPI 4, mpirun of Open MPI 5 (PRRTE's prterun, with options and
// messages of its own), or Slurm's srun.
enum class Starter : std::uint8_t { mpirun, prterun, srun };
// The program to start: "mpirun" or "srun".
std::string_view program_of(Starter starter);
// Recognises the starter by the output of `mpirun --version`.
Starter starter_of(std::string_view version);

// The nodes that launch may use, and how it starts programs on them.
struct Allocation {
  std::vector<Host> hosts;
  std::string origin;        // "Slurm job 12", "--hosts", "the MPIJob's hostfile", "this machine"
  std::optional<int> ranks;  // ranks that were asked for (sbatch --ntasks); nullopt: as many as there are slots
  Starter starter = Starter::mpirun;
  std::string why_not_srun;  // inside Slurm with mpirun: the reason
  bool in_slurm = false;     // programs reach other nodes by srun, otherwise by ssh
};

// Determines how this process was started: in a Slurm allocation, an MPIJob (Kubeflow), otherwise --hosts, otherwise
// this machine alone. Throws Error{usage} if --hosts is not understood or names nodes without an address or outside the
// allocation.
Allocation find_allocation(const std::optional<std::string>& hosts);

// Expands "2(x3),1" of Slurm's variables to 2 2 2 1; empty if it is not understood.
std::vector<int> per_node(std::string_view text);

// The number of ranks on a node.
struct Share {
  std::string host;
  int ranks;

  bool operator==(const Share&) const = default;
};

// Spreads `ranks` ranks over these nodes as evenly as their slots allow, earlier nodes first. A host without slots has
// `default_slots`. Empty if there are not enough slots.
std::vector<Share> spread(const std::vector<Host>& hosts, int ranks, int default_slots);
int total(const std::vector<Share>& shares);
// The number of ranks that a node with this many GPUs takes: its slots; without slots, one per GPU, or one. If slots
// are processors, one rank per GPU, or one per processor without GPUs.
int ranks_on(const Host& host, std::size_t gpus);
// "n1 (2), n2 (2)"; long lists are shortened.
std::string describe(const std::vector<Share>& shares);

// The command that runs `words` on a node of the allocation, in this process's folder, with these variables
// (NAME=VALUE) set there.
Program on_node(const Allocation& allocation, const std::string& host, const std::vector<std::string>& words,
                const std::vector<std::string>& variables, bool listens);

// The agent by which the user's Open MPI variables make mpirun reach other nodes; empty: ssh.
std::string remote_shell_agent();

// Why a program did not run on a node, from the output of ssh or srun: a sentence that says what to do.
std::string why_not_reached(const std::string& host, std::string_view output, std::optional<int> code);

}  // namespace strata::launcher
