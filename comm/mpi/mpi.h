#pragma once
// comm/mpi/ connects processes: the session and the worlds (this header), messages between nodes (messages.cc), memory
// that the ranks of a node share (shared_memory.cc), finding the rank that failed first (control_line.h), a watch for
// ranks that never call MPI, and the removal of files that killed runs leave on a node (start.h).

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/process.h"

namespace strata::comm {

// Throws an Error{failed} with the name of the call and MPI's own message.
[[noreturn]] void mpi_failed(const char* call, int code);

// Every MPI call goes through this macro. MPI returns errors (MPI_ERRORS_RETURN) and never ends the process.
#define STRATA_MPI(call)                                                            \
  do {                                                                              \
    const int strata_code = (call);                                                 \
    if (strata_code != MPI_SUCCESS) ::strata::comm::mpi_failed(#call, strata_code); \
  } while (0)

// Data between nodes is sent in messages of at most this many bytes, which MPI sends without a handshake.
inline constexpr std::size_t kMessagePiece = std::size_t{256} << 10;

// The MPI session, from MPI_Init_thread to MPI_Finalize, and the ranks' identities. One per process, in a unique_ptr.
class MpiSession {
 public:
  MpiSession();
  // Calls MPI_Finalize unless the session was abandoned: MPI_Finalize would wait for ranks that never call it.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  void abandon() { abandoned_ = true; }

  int rank = 0, size = 1, node_rank = 0, node_size = 1;
  std::vector<int> nodes;  // the node of each rank; nodes are numbered by their lowest ranks
  // The other ranks of this node whose processes this rank can see.
  std::vector<Process> neighbours;

 private:
  bool abandoned_ = false;
};

// The world under mpirun in which the ranks of one node read each other's memory. If that is impossible, returns null
// on all ranks and sets `why_not`.
std::unique_ptr<World> mpi_shared_memory_world(std::unique_ptr<MpiSession>& session, std::string& why_not);
// The world under mpirun in which ranks send messages. `why`: the reason for messages if shared memory was preferred;
// describe() reports it. `timeout`: how long to wait at the end for ranks of other nodes, which may still be writing
// their reports or their part of a checkpoint.
std::unique_ptr<World> mpi_messages_world(std::unique_ptr<MpiSession> session, const std::string& why,
                                          std::chrono::seconds timeout = std::chrono::minutes(10));

}  // namespace strata::comm
