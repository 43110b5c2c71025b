#include "comm/process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/host/host.h"

namespace strata::comm {
namespace {

struct Stat {
  char state = 'X';  // dead unless read
  std::uint64_t start_time = 0;
};

// proc(5): the name in parentheses may contain anything, so fields are counted from the last parenthesis.
Stat read_stat(pid_t pid) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return {};
  text[size] = '\0';
  const char* field = std::strrchr(text, ')');
  if (!field || std::strlen(field) < 3) return {};
  field += 2;  // field 3, the state
  Stat stat{*field, 0};
  for (int number = 3; number < 22 && field; ++number) {
    field = std::strchr(field, ' ');
    if (field) ++field;
  }
  if (field) std::sscanf(field, "%lu", &stat.start_time);
  return stat;
}

}  // namespace

Process Process::self(int rank) {
  return {rank, getpid(), read_stat(getpid()).start_time};
}

bool Process::alive() const {
  const Stat stat = read_stat(pid);
  return stat.state != 'X' && stat.state != 'Z' && stat.start_time == start_time;
}

std::string Process::death_message() const {
  return fmt::format(
      "rank {} (pid {} on {}) ended without a message: it crashed or was killed; its own last output, or the "
      "kernel's log if memory ran out, says why",
      rank, pid, host_name());
}

bool NodeClaim::take() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The zero before the name makes it abstract.
  const std::size_t size = name_.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() >= 0 && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)) != 0)
    return errno != EADDRINUSE;
  held_ = std::move(socket);
  return true;
}

}  // namespace strata::comm
