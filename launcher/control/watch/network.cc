#include "launcher/control/watch/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace strata::launcher::control {

std::vector<std::string> addresses_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail(Exit::failed, "the network interfaces of this machine cannot be listed");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
  std::vector<std::string> named, usual, loopback, known;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    // IPv6's link-local ones need a scope that differs from node to node, and the rest of it is seldom without IPv4.
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_UP) == 0) continue;
    sockaddr_in in{};
    std::memcpy(&in, at->ifa_addr, sizeof in);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (!inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size())) continue;
    const std::string address = text.data();
    known.push_back(fmt::format("{} ({})", at->ifa_name, address));
    if (interface == at->ifa_name || interface == address) named.push_back(address);
    ((at->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : usual).push_back(address);
  }
  if (interface.empty()) {
    usual.insert(usual.end(), loopback.begin(), loopback.end());
    return usual;
  }
  if (named.empty())
    fail(Exit::usage, "control.interface = \"{}\": this machine has no such interface with an IPv4 address: it has {}",
         interface, fmt::join(known, ", "));
  return named;
}

std::string grpc_target(const std::vector<std::string>& addresses, int port) {
  std::string out = "ipv4:";
  for (std::size_t i = 0; i < addresses.size(); ++i)
    out += fmt::format("{}{}:{}", i == 0 ? "" : ",", addresses[i], port);
  return out;
}

}  // namespace strata::launcher::control
