#pragma once
// base/host/ tells a process about its machine: its name, its memory, the path of this program, and what control groups
// allow. It also looks up the addresses of other machines.

#include <netdb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The host name of this machine or container; "?" if it has none.
std::string host_name();

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The stream addresses of a host, from the system's resolver. `addresses` is null for an unknown host.
struct AddressLookup {
  AddressList addresses;
  std::string why;  // the resolver's message if there are no addresses
};
// `flags` are those of getaddrinfo(). Without `port`, the addresses have no port.
AddressLookup look_up(const std::string& host, std::optional<int> port = std::nullopt, int flags = 0);

// The path of this program's file, for starting it again. It stays correct even if another build replaces the file.
std::filesystem::path own_program();

// A control group that limits this process, for example a container's: its folder and its version.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;
};
// This process's group and those of its ancestors that are mounted, for the controller ("cpu", "memory") in versions 1
// and 2. Tests pass another `root`, under which /proc/self and the groups are looked up.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

// The number of processors that this process's control groups allow: the lowest quota among its group and that group's
// ancestors, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max). nullopt if there is no quota. `root`: see
// control_groups().
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
// The number of threads that a quota can keep busy, at least one.
int threads_within(double quota);
// The number of cores, limited by the quota.
int cores_within(int cores, const std::optional<double>& quota);

// A figure of /proc/meminfo, in bytes: "MemTotal", "MemAvailable". nullopt if the file lacks it. `root`: see
// control_groups().
std::optional<std::uint64_t> memory_info(std::string_view figure, const std::filesystem::path& root = "/");

}  // namespace strata
