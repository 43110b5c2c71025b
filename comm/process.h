#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace strata::comm {

// A process of this node that may end at any time. The start time tells it from another that got its number.
struct Process {
  int rank;
  pid_t pid;
  std::uint64_t start_time;  // ticks since boot

  static Process self(int rank);
  // False once it ended, also while nobody has reaped it, and where its number means nothing here (another container).
  bool alive() const;
  // "rank 1 (pid 1234 on this node) ended without a word: ..."
  std::string obituary() const;
};

}  // namespace strata::comm
