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

// Where streams to a host go, as the system's resolver says; null if it knows no such host.
struct Found {
  AddressList addresses;
  std::string why;  // there are none, in the resolver's words
};
// flags: getaddrinfo's. Without a port the addresses have none.
Found look_up(const std::string& host, std::optional<int> port = std::nullopt, int flags = 0);

}  // namespace strata
