#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "comm/communicator.h"
#include "device/device.h"

namespace strata::comm {

class NcclCommunicator;

// Looks after a run whose host waits for lanes, lanes for NCCL, and NCCL for other ranks: a thread that sets the abort
// token where one of those failed, is gone or hangs for longer than `patience`, and ends what NCCL has in flight once
// it is set. `device` is where all communicators are.
class NcclWatch {
 public:
  NcclWatch(World& world, device::Device device, std::chrono::milliseconds patience);
  ~NcclWatch();

  // While it lives.
  void add(NcclCommunicator& communicator);
  void remove(NcclCommunicator& communicator);

  // Ends what all communicators have in flight; they are of no use afterwards. Returns when NCCL has let go of them,
  // also where another thread began it. Any thread, once or more.
  void abort_all() noexcept;

 private:
  void look_after();
  void look();
  void abort_all_locked() noexcept;

  World& world_;
  const device::Device device_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stop_ = false;
  std::set<NcclCommunicator*> communicators_;
  std::jthread thread_;
};

}  // namespace strata::comm
