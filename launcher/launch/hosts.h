#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A node, by the name under which it can be reached, and its slots for ranks (nullopt if their number is not given).
// `processors`: the slots come from a Slurm job that did not request a number of tasks.
struct Host {
  std::string name;
  std::optional<int> slots;
  bool processors = false;

  bool operator==(const Host&) const = default;
};

// Parses --hosts: the lines of a file of that name, otherwise hosts separated by commas, "n1:8,n2:8" or "n[1-4]:8". If
// a name occurs again, its slots are added up. Throws Error{usage} that names the line or word that cannot be parsed.
std::vector<Host> read_hosts(const std::string& text);

// Parses the lines of a host file, one node each: "NAME", "NAME slots=N" (Open MPI, DeepSpeed, MPIJob; max_slots= must
// not be less), "NAME:N" (MPICH), or a Slurm list of nodes ("n[1-4]"). # starts a comment. A name that occurs again
// adds its slots, or one slot without a number, as in Open MPI and PBS_NODEFILE. `where` is the file's name in errors.
std::vector<Host> parse_host_file(std::string_view text, const std::string& where);

// Expands a Slurm list of nodes with `scontrol show hostnames`.
std::vector<std::string> slurm_names(const std::string& list);

// Throws Error{usage} that names the hosts without an address and their `origin`. Retries for this many seconds.
void require_addresses(const std::vector<Host>& hosts, const std::string& origin, double seconds);
// Throws Error{usage} if localhost is one of several hosts.
void require_network_names(const std::vector<Host>& hosts, const std::string& origin);

// Whether the name resolves to this machine.
bool is_this_machine(const std::string& name);
// The first address of a name, in numeric form, IPv4 before IPv6; empty if there is none.
std::string address_of(const std::string& name);

}  // namespace strata::launcher
