#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/hosts.h"
#include "launcher/launch/ranks/child.h"

namespace strata::launcher {

// The program that starts the ranks: mpirun of Open MPI 4, mpirun of Open MPI 5 (PRRTE's prterun, whose options and
// messages differ), or Slurm's srun.
enum class Starter : std::uint8_t { mpirun, prterun, srun };
// The name of the program to start: "mpirun" or "srun".
std::string_view program_of(Starter starter);
// Recognises the starter from the output of `mpirun --version`.
Starter starter_of(std::string_view version);

// The nodes that launch may use, and how it starts programs on them.
struct Allocation {
  std::vector<Host> hosts;
  std::string origin;        // "Slurm job 12", "--hosts", "the MPIJob's hostfile", "this machine"
  std::optional<int> ranks;  // the number of ranks requested (sbatch --ntasks); nullopt: one per slot
  Starter starter = Starter::mpirun;
  std::string why_not_srun;  // inside Slurm with mpirun: why srun is not used
  bool in_slurm = false;     // other nodes are reached by srun, otherwise by ssh
};

// Determines where ranks may run: in the Slurm allocation or MPIJob (Kubeflow) in which this process was started,
// otherwise on --hosts, otherwise on this machine alone. Throws Error{usage} if --hosts cannot be parsed, or names
// nodes without an address or outside the allocation.
Allocation find_allocation(const std::optional<std::string>& hosts);

// Expands "2(x3),1" in Slurm's variables to 2 2 2 1; empty if it cannot be parsed.
std::vector<int> per_node(std::string_view text);

// The number of ranks on a node.
struct Share {
  std::string host;
  int ranks;

  bool operator==(const Share&) const = default;
};

// Spreads `ranks` ranks over these nodes as evenly as their slots allow, earlier nodes first. A host without slots has
// `default_slots`. Empty if there are not enough slots.
std::vector<Share> distribute_ranks(const std::vector<Host>& hosts, int ranks, int default_slots);
int total(const std::vector<Share>& shares);
// The number of ranks that a node with this many GPUs takes: one per slot; without slots, one per GPU, or one. If the
// slots are processors, one rank per GPU, or one per processor without GPUs.
int ranks_on(const Host& host, std::size_t gpus);
// "n1 (2), n2 (2)"; a long list is shortened.
std::string describe(const std::vector<Share>& shares);

// The command that runs `words` on a node of the allocation, in this process's folder, with these variables
// (NAME=VALUE) set there.
Program on_node(const Allocation& allocation, const std::string& host, const std::vector<std::string>& words,
                const std::vector<std::string>& variables, bool listens);

// The agent with which mpirun reaches other nodes according to the user's Open MPI variables; empty: ssh.
std::string remote_shell_agent();

// Why a program did not run on a node, from the output of ssh or srun, as a sentence that says what to do.
std::string why_not_reached(const std::string& host, std::string_view output, std::optional<int> code);

}  // namespace strata::launcher
