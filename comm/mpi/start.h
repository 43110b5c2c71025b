#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <thread>

namespace strata::comm {

// While this object exists, it limits how long the process waits for the other ranks of its launcher. MPI itself waits
// forever for a rank that never calls MPI_Init because it runs another program or command. When the time is up, the
// watch ends the process with one sentence on stderr and Exit::failed, and the launcher then ends the others. Lower
// ranks print first. The limit is two minutes, or STRATA_CONNECT_SECONDS. Throws AgreedError{usage} if that is not a
// number of seconds.
class StartWatch {
 public:
  StartWatch(int rank, int ranks);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(std::chrono::seconds timeout, int rank, int ranks);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool connected_ = false;
  std::thread thread_;
};

// The folders in which Open MPI keeps the files that the processes of a node share: segments of 4 MiB per rank, and a
// folder per mpirun.
struct SharedFolders {
  std::filesystem::path segments = "/dev/shm";
  std::filesystem::path sessions;  // if empty, the one that Open MPI chooses: TMPDIR, TEMP, TMP, otherwise /tmp
};

// Removes the segments and session folders that this user's killed runs left on this node, under the names of Open MPI
// 4 and 5, unless a process in any container has them open. Ignores those that cannot be removed. Returns the number
// removed.
std::size_t remove_stale_files(SharedFolders folders = {});

}  // namespace strata::comm
