#pragma once
// base/host/ holds what a process knows about its machine, and about others by their names: names, addresses and the
// program's own path, and what control groups allow.

#include <netdb.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The name that this machine or container gives itself; "?" if the system has none.
std::string host_name();

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The stream addresses of a host, as the system's resolver gives them; null if the resolver does not know the host.
struct AddressLookup {
  AddressList addresses;
  std::string why;  // the resolver's message if there are no addresses
};
// flags: as for getaddrinfo. Without a port, the addresses have none.
AddressLookup look_up(const std::string& host, std::optional<int> port = std::nullopt, int flags = 0);

// The path of this program's file, for starting it again. It is right even if another build has replaced the file.
std::filesystem::path own_program();

// A control group that bounds this process, as a container's limits do: its folder and its version.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;
};
// This process's group and those above it, as far as they are mounted, for the controller ("cpu", "memory") in versions
// 1 and 2. Tests give another `root`, below which /proc/self and the groups are looked up.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

// The processor time that this process's control groups allow, in processors: the lowest quota of its group and those
// above it, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max). nullopt if there is no quota. `root`: see
// control_groups().
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
// The number of threads that a quota can keep busy, at least one.
int threads_within(double quota);
// The number of cores, limited by the quota.
int cores_within(int cores, const std::optional<double>& quota);

}  // namespace strata
