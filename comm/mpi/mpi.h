#pragma once
// comm/mpi/ connects processes: the session and the world (here), messages between nodes (messages.cc), the memory that
// ranks of one node share (shared_memory.cc), who failed first (control_line.h), a watch over ranks that never call MPI
// (start_watch.h), and what killed starts leave behind (leftovers.h).

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/process.h"

namespace strata::comm {

// Throws Error{failed} that names the call and gives MPI's own words.
[[noreturn]] void mpi_failed(const char* call, int code);

// Every call of MPI goes through this; errors are returned (MPI_ERRORS_RETURN), never fatal inside MPI.
#define STRATA_MPI(call)                                                            \
  do {                                                                              \
    const int strata_code = (call);                                                 \
    if (strata_code != MPI_SUCCESS) ::strata::comm::mpi_failed(#call, strata_code); \
  } while (0)

// MPI from MPI_Init_thread to MPI_Finalize, and who the ranks are. One per process. Move-only by unique_ptr.
class MpiSession {
 public:
  MpiSession();
  // MPI_Finalize, unless abandoned: it would wait for ranks that do not come.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  void abandon() { abandoned_ = true; }

  int rank = 0, size = 1, node_rank = 0, node_size = 1;
  // The other ranks of this node whose processes this one can see.
  std::vector<Process> neighbours;

 private:
  bool abandoned_ = false;
};

// The worlds under mpirun. Ranks that all share a node read each other's memory; `why_not` is set, and null returned,
// on all ranks if that is impossible.
std::unique_ptr<World> mpi_shared_memory_world(std::unique_ptr<MpiSession>& session, std::string& why_not);
// `why`: the reason for messages if memory was preferred; told by describe(). `patience`: at the end, with ranks of
// other nodes, which may still write their reports or their part of a checkpoint.
std::unique_ptr<World> mpi_messages_world(std::unique_ptr<MpiSession> session, const std::string& why,
                                          std::chrono::seconds patience = std::chrono::minutes(10));

}  // namespace strata::comm
