#pragma once
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/mpi/mpi.h"

namespace strata::comm {

// The ranks' second line beside the data: tells of failures and of ranks that leave, by small messages on a
// communicator of its own, and looks after the processes of this node. Every wait for messages polls it.
// Thread-safe: the lanes of a rank share one. A process killed on another node is beyond it: Open MPI 4.1 ends this one
// inside its next call when the connection breaks, and mpirun names the rank.
class ControlLine {
 public:
  // `patience`: of leave_together() with ranks of other nodes.
  ControlLine(MpiSession& session, AbortToken& token, std::chrono::seconds patience);
  ~ControlLine();
  ControlLine(const ControlLine&) = delete;
  ControlLine& operator=(const ControlLine&) = delete;

  // In a wait. Throws Aborted, with the first cause, once this rank or another has failed, died, or left.
  void poll();
  // Beside the run: the same, but that others have left is no failure. If nobody waits for them, they are through.
  void look_after();
  // Tells the others; returns at once.
  void report_failure(const std::string& cause, Exit code);
  // What ended the run. Ranks may fail at the same moment, each before it has heard of the others: where this rank did,
  // it listens for a little, and the lowest of them counts.
  Failure failure();
  // True if no lower rank is left on this node.
  bool lowest_left() const;
  // The end of a run: tells the others that this rank leaves and waits for them. False if the run failed.
  bool leave_together();

 private:
  enum class Kind : std::int32_t { failed, left };
  struct Notice {
    Kind kind;
    std::int32_t rank, code, told;
    std::array<char, 1024> text;
  };
  void look(bool waiting);
  static Notice notice(Kind kind, const Failure& failure);
  void listen();
  void receive();
  void tell_others(const Notice& notice, std::vector<MPI_Request>& requests);
  void fail_with(const Failure& failure);

  MpiSession& session_;
  AbortToken& token_;
  const std::chrono::seconds patience_;
  std::mutex mutex_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  Notice incoming_{}, failure_{}, farewell_{};
  bool told_ = false, listened_ = false;
  bool yields_ = false;  // when this rank failed, another had said that it did
  Failure lowest_;       // of those that other ranks told of; rank -1: none
  std::vector<bool> left_;
  std::int64_t first_left_ = 0, next_look_ = 0;  // ns of the steady clock
  std::vector<MPI_Request> failure_requests_, farewell_requests_;
};

}  // namespace strata::comm
