#include "base/host/host.h"

#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

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

std::filesystem::path own_program() {
  constexpr std::string_view kReplaced = " (deleted)";  // Linux appends this to the path of a replaced program
  std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.ends_with(kReplaced)) path.resize(path.size() - kReplaced.size());
  return path;
}

}  // namespace strata
