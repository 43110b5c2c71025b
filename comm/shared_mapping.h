#pragma once
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/files/descriptor.h"

namespace strata::comm {

// Memory that other processes of this node can map while its file is open. Move-only; unmaps.
//
// A memfd, mapped by peers through /proc/PID/fd/FD, and not MPI_Win_allocate_shared: Open MPI backs windows by files of
// its session folder or of /dev/shm, which containers cap at 64 MiB, and a full one ends in SIGBUS. A memfd is bound by
// memory alone. Pages are taken when first touched, which is the owner's part: on NUMA machines they lie with it.
class SharedMapping {
 public:
  SharedMapping() = default;
  // Makes one; `name` tells it from any other. Throws Error{does_not_fit} if the system refuses.
  SharedMapping(std::string name, std::size_t bytes);
  ~SharedMapping();
  SharedMapping(SharedMapping&&) noexcept;
  SharedMapping& operator=(SharedMapping&&) noexcept;

  // How a peer finds it; valid while the maker holds the file open.
  struct Address {
    pid_t pid;
    int fd;
    std::size_t bytes;
    char name[64];
  };
  Address address() const;
  void close_file();  // once the peers have mapped it

  // Maps another process's; throws Error{failed} saying why it cannot: another container, no rights, hidden /proc.
  static SharedMapping of(const Address& address);

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void map();

  std::string name_;
  Descriptor file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Takes what another process's mapping holds in [data, data + bytes) out of this process's resident set; the memory
// stays as it is, and reading it again brings it back. Never for memory of this process's own, whose contents would be
// lost.
void let_go(const std::byte* data, std::size_t bytes);

// The resident bytes of this process's mappings of memory files whose name starts with `prefix`.
std::size_t resident_bytes(const std::string& prefix);

}  // namespace strata::comm
