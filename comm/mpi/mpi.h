#pragma once
// comm/mpi/ connects processes: the session and the worlds (this header), messages between nodes (messages.cc), memory
// that the ranks of a node share (shared_memory.cc), which rank failed first (control_line.h), a watch for ranks that
// never call MPI (start_watch.cc), and the removal of what killed runs leave on a node (leftovers.cc).

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

// MPI from MPI_Init_thread to MPI_Finalize, and the ranks' identities. One per process. Moved by unique_ptr only.
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

// The worlds under mpirun. In the first, ranks on one node read each other's memory. If that is impossible, all ranks
// get null and a `why_not`.
std::unique_ptr<World> mpi_shared_memory_world(std::unique_ptr<MpiSession>& session, std::string& why_not);
// `why`: the reason for using messages if shared memory was preferred; describe() reports it. `patience`: how long to
// wait at the end for ranks of other nodes, which may still be writing their reports or their part of a checkpoint.
std::unique_ptr<World> mpi_messages_world(std::unique_ptr<MpiSession> session, const std::string& why,
                                          std::chrono::seconds patience = std::chrono::minutes(10));

// The places in which Open MPI keeps what the processes of a node share: segments of 4 MiB per rank, and a folder per
// mpirun.
struct SharedPlaces {
  std::filesystem::path segments = "/dev/shm";
  std::filesystem::path sessions;  // if empty, as Open MPI chooses it: TMPDIR, TEMP, TMP, otherwise /tmp
};

// Removes what this user's killed starts left on this node, under the names of Open MPI 4 and 5: segments and session
// folders that no process in any container has open. Whatever cannot be removed stays. Returns how many were removed.
std::size_t clear_leftovers(SharedPlaces places = {});

// While one of these lives, this process is waiting for the other ranks that its launcher started. MPI waits forever
// for a rank that never calls MPI_Init because it runs another program or command. This watch ends the process after a
// while, with one sentence on stderr and Exit::failed; the launcher then ends the others. Lower ranks print first. The
// wait is two minutes, or STRATA_CONNECT_SECONDS. Throws AgreedError{usage} if that is not a number of seconds.
class StartWatch {
 public:
  StartWatch(int rank, int ranks);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(std::chrono::seconds patience, int rank, int ranks);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool connected_ = false;
  std::thread thread_;
};

}  // namespace strata::comm
