#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <thread>

namespace strata::comm {

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

// The places in which Open MPI keeps what the processes of a node share: segments of 4 MiB per rank, and a folder per
// mpirun.
struct SharedPlaces {
  std::filesystem::path segments = "/dev/shm";
  std::filesystem::path sessions;  // if empty, as Open MPI chooses it: TMPDIR, TEMP, TMP, otherwise /tmp
};

// Removes what this user's killed starts left on this node, under the names of Open MPI 4 and 5: segments and session
// folders that no process in any container has open. Whatever cannot be removed stays. Returns how many were removed.
std::size_t clear_leftovers(SharedPlaces places = {});

}  // namespace strata::comm
