#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "comm/mpi/control_line.h"
#include "tests/comm/mpi/fake.h"

namespace strata::comm {

// A rank with its end of the control line.
struct LineEnd {
  explicit LineEnd(std::chrono::seconds timeout = std::chrono::minutes(10)) : line(session, token, timeout) {}
  // The cause of a call's failure; "" if the call succeeds.
  template <typename F>
  static std::string cause_of(F&& f) {
    try {
      f();
    } catch (const Aborted& e) {
      return e.what();
    }
    return "";
  }
  // Polls until the run has failed. Returns the number of earlier polls.
  int poll_until_failed() {
    for (int polls = 0;; ++polls)
      if (!cause_of([&] { line.poll(); }).empty()) return polls;
  }

  MpiSession session;
  AbortToken token;
  ControlLine line;
};

inline void expect_failure(const Failure& failure, int rank, const std::string& cause, Exit code = Exit::failed,
                           bool self_reported = true) {
  EXPECT_EQ(failure.rank, rank);
  EXPECT_EQ(failure.cause, cause);
  EXPECT_EQ(failure.code, code);
  EXPECT_EQ(failure.self_reported, self_reported);
}

// Ranks wait here for each other, outside of MPI.
class Gate {
 public:
  explicit Gate(int ranks) : left_(ranks) {}
  void come() {
    --left_;
    while (left_.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<int> left_;
};

// Waits until the rank has sent this many notices.
inline void wait_for_notices(int rank, std::size_t count) {
  while (fake_mpi::calls(rank, "Isend") < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace strata::comm
