#pragma once
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/files/descriptor.h"

namespace strata::comm {

// Memory that other processes of this node can map while its file is open. Move-only; unmaps.
//
// It is a memfd, which peers map through /proc/PID/fd/FD, instead of MPI_Win_allocate_shared. Open MPI backs windows by
// files in its session folder or in /dev/shm, which containers limit to 64 MiB, and a full one ends in SIGBUS. Only
// memory limits a memfd. Pages are allocated when first touched, and the owner touches them: on NUMA machines they are
// local to it.
class SharedMapping {
 public:
  SharedMapping() = default;
  // Creates a mapping with a unique `name`. Throws Error{does_not_fit} if the system refuses.
  SharedMapping(std::string name, std::size_t bytes);
  ~SharedMapping();
  SharedMapping(SharedMapping&&) noexcept;
  SharedMapping& operator=(SharedMapping&&) noexcept;

  // How a peer finds the mapping; valid while its maker holds the file open.
  struct Address {
    pid_t pid;
    int fd;
    std::size_t bytes;
    char name[64];
  };
  Address address() const;
  void close_file();  // once the peers have mapped it

  // Maps another process's memory. Throws an Error{failed} with the reason if that is impossible: another container, no
  // permission, a hidden /proc.
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

// Drops the pages of another process's mapping in [data, data + bytes) from this process's resident set. The memory
// keeps its contents, and the next access maps it again. Never use it on this process's own memory, whose contents
// would be lost.
void release_pages(const std::byte* data, std::size_t bytes);

}  // namespace strata::comm
