#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace strata::comm {

// While one lives, this process waits for the other ranks that its launcher started. MPI waits forever for one that
// never comes to MPI_Init, because it runs another program or command: after a while the process ends with one sentence
// on stderr and Exit::failed, after which the launcher ends the others. Lower ranks speak first. How long it waits is
// two minutes, or as STRATA_CONNECT_SECONDS says. Throws AgreedError{usage} if that is no number of seconds.
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
