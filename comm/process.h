#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/files/descriptor.h"

namespace strata::comm {

// A process of this node that may end at any time. The start time distinguishes it from a later process with the same
// PID.
struct Process {
  int rank;
  pid_t pid;
  std::uint64_t start_time;  // ticks since boot

  static Process self(int rank);
  // False once the process has ended, even if it has not been reaped. Also false in another container, where its PID
  // means nothing.
  bool alive() const;
  // "rank 1 (pid 1234 on nB) ended without a message: ...": other nodes print it, too.
  std::string death_message() const;
};

// A claim that only one process of this node can hold: the first to take it. It is the name of an abstract socket
// (unix(7)), so taking it is atomic, leaves no file, and needs no set-up among the processes. It ends with its
// holder.
class NodeClaim {
 public:
  explicit NodeClaim(std::string name) : name_(std::move(name)) {}
  // True for the first caller. Also true if the system refuses sockets, because then no process could take it.
  bool take();

 private:
  std::string name_;
  Descriptor held_;
};

}  // namespace strata::comm
