#pragma once
#include <netdb.h>

#include <memory>
#include <optional>
#include <string>

namespace strata {

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

}  // namespace strata
