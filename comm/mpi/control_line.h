#pragma once
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/mpi/mpi.h"
#include "comm/process.h"

namespace strata::comm {

// A second connection between the ranks, separate from the data. It reports failures and ranks that leave, in small
// messages on its own communicator, and watches the processes of this node. Every wait for messages polls it.
// Thread-safe: all lanes of a rank share one. It cannot see that a process on another node was killed: when the
// connection breaks, Open MPI 4.1 ends this process inside its next call, and mpirun names the rank that was killed.
class ControlLine {
 public:
  // `timeout`: how long leave_together() waits for ranks of other nodes.
  ControlLine(MpiSession& session, AbortToken& token, std::chrono::seconds timeout);
  ~ControlLine();
  ControlLine(const ControlLine&) = delete;
  ControlLine& operator=(const ControlLine&) = delete;

  // Called during a wait. Throws Aborted, with the first cause, once this rank or another has failed, died, or left.
  void poll();
  // Called outside waits. Like poll(), but a rank that has left is not a failure: if no rank waits for it, it has
  // finished.
  void check();
  // Tells the other ranks that this one failed. Returns immediately.
  void report_failure(const std::string& cause, Exit code);
  // The failure that ended the run. Several ranks can fail at the same moment, each before it receives the others'
  // notices. So a rank that failed listens for a short time, and the lowest failed rank's failure is reported.
  Failure failure();
  // See World::when_lost().
  void when_lost(std::function<void(const Failure&)> print);
  // Ends the run: tells the other ranks that this rank leaves, and waits until they leave too. False if the run failed.
  bool leave_together();

 private:
  enum class Kind : std::int32_t { failed, left };
  struct Notice {
    Kind kind;
    std::int32_t rank, code, self_reported;
    std::array<char, 1024> text;
  };
  void look(bool waiting);
  static Notice notice(Kind kind, const Failure& failure);
  void listen();
  void receive();
  void send_to_others(const Notice& notice, std::vector<MPI_Request>& requests);
  void fail_with(const Failure& failure);

  MpiSession& session_;
  AbortToken& token_;
  const std::chrono::seconds timeout_;
  std::mutex mutex_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  Notice incoming_{}, failure_{}, leave_notice_{};
  std::function<void(const Failure&)> print_loss_;
  NodeClaim losses_;  // held by the rank of this node that prints a loss
  bool reported_ = false, listened_ = false;
  bool yields_ = false;  // another rank had reported its failure before this one failed
  Failure lowest_;       // the lowest failure that other ranks reported; rank -1: none
  std::vector<bool> left_;
  std::int64_t first_left_ = 0, next_look_ = 0;  // nanoseconds of the steady clock
  std::vector<MPI_Request> failure_requests_, leave_requests_;
};

}  // namespace strata::comm
