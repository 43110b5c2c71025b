#pragma once
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "comm/communicator.h"

namespace strata::comm {

class NcclCommunicator;

// Looks after a run whose host waits for lanes, lanes for NCCL, and NCCL for other ranks: a thread that sets the abort
// token where one of those failed, is gone or hangs, and ends what NCCL has in flight once it is set.
class NcclWatch {
 public:
  explicit NcclWatch(World& world);
  ~NcclWatch();

  // While it lives.
  void add(NcclCommunicator& communicator);
  void remove(NcclCommunicator& communicator);

 private:
  void look_after();

  World& world_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stop_ = false;
  std::set<NcclCommunicator*> communicators_;
  std::thread thread_;
};

}  // namespace strata::comm
