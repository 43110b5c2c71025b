#pragma once
// base/host/ holds what a process knows about its machine, and about others by their names: names, addresses and the
// program's own path (here), and what control groups allow (control_groups.h).

#include <netdb.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace strata {

// The name that this machine or container gives itself; "?" if the system has none.
std::string host_name();

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The stream addresses of a host, as the system's resolver gives them; null if the resolver does not know the host.
struct Found {
  AddressList addresses;
  std::string why;  // the resolver's message if there are no addresses
};
// flags: those of getaddrinfo. Without a port, the addresses have none.
Found look_up(const std::string& host, std::optional<int> port = std::nullopt, int flags = 0);

// The path of this program's file, for starting it again. It is right even if another build has replaced the file.
std::filesystem::path own_program();

}  // namespace strata
