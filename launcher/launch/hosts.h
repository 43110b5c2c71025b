#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A node by the name that reaches it, and how many ranks it has room for; nullopt: nobody said. `processors`: the slots
// are those of a Slurm job that was asked for no number of tasks.
struct Host {
  std::string name;
  std::optional<int> slots;
  bool processors = false;

  bool operator==(const Host&) const = default;
};

// What --hosts says: the lines of a file of that name, else hosts between commas, "n1:8,n2:8" or "n[1-4]:8"; names
// that come again add up in both. Throws Error{usage} that names the line or word if it is not understood.
std::vector<Host> read_hosts(const std::string& text);

// The lines of a host file: a node each, "NAME", "NAME slots=N" (Open MPI, DeepSpeed, MPIJob; max_slots= may not be
// less), "NAME:N" (MPICH), a Slurm list of nodes ("n[1-4]"); # starts a comment. A name that comes again adds its
// slots, one if it has no number, as in Open MPI and in PBS_NODEFILE. `where` is the file's name in errors.
std::vector<Host> parse_host_file(std::string_view text, const std::string& where);

// The names of a Slurm list of nodes, by `scontrol show hostnames`.
std::vector<std::string> slurm_names(const std::string& list);

// Throws Error{usage} that names those without an address, and `origin`, which names them; for so many seconds it is
// tried again.
void require_addresses(const std::vector<Host>& hosts, const std::string& origin, double seconds);

// Whether a name leads to this machine.
bool is_this_machine(const std::string& name);
// The first address of a name, in figures, IPv4 before IPv6; empty: there is none.
std::string address_of(const std::string& name);

}  // namespace strata::launcher
