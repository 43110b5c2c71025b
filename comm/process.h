#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace strata::comm {

// A process of this node that may end at any time. The start time distinguishes it from a later process with the same
// PID.
struct Process {
  int rank;
  pid_t pid;
  std::uint64_t start_time;  // in ticks since boot

  static Process self(int rank);
  // False once the process has ended, even if it has not been reaped. Also false in another container, where its PID
  // means nothing.
  bool alive() const;
  // "rank 1 (pid 1234 on nB) ended without a message: ...": other nodes print it, too.
  std::string obituary() const;
};

}  // namespace strata::comm
