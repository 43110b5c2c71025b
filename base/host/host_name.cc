#include "base/host/host_name.h"

#include <unistd.h>

#include <array>

namespace strata {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

Found look_up(const std::string& host, std::optional<int> port, int flags) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const std::string service = port ? std::to_string(*port) : "";
  if (const int error = ::getaddrinfo(host.c_str(), port ? service.c_str() : nullptr, &hints, &list); error != 0)
    return {nullptr, ::gai_strerror(error)};
  return {AddressList(list), ""};
}

}  // namespace strata
