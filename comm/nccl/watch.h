#pragma once
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "device/device.h"

namespace strata::comm {

// What the watch looks after, on a thread whose device is that of its lane.
class NcclWatched {
 public:
  // What NCCL found wrong since the last call, or that for longer than `patience` no collective ended although some
  // were under way, or NCCL was busy connecting; empty: nothing. Calls no CUDA: the thread that issues may be in there
  // until the watch ends what its stream waits for.
  virtual std::string trouble(std::chrono::milliseconds patience) = 0;
  // For whoever aborts or destroys it: the ncclComm_t, which no call uses any more; null if there is none left.
  virtual ncclComm_t take() = 0;

 protected:
  ~NcclWatched() = default;
};

// Looks after a run whose host waits for lanes, lanes for NCCL, and NCCL for other ranks: a thread that sets the abort
// token if one of those failed, is gone or hangs for longer than `patience`, and ends what NCCL has in flight once
// it is set. `device` is where all communicators are.
class NcclWatch {
 public:
  NcclWatch(World& world, device::Device device, std::chrono::milliseconds patience);
  ~NcclWatch();

  // While it lives.
  void add(NcclWatched& communicator);
  void remove(NcclWatched& communicator);

  // Ends what all communicators have in flight; they are of no use afterwards. Returns when NCCL has released them,
  // also if another thread began it. Any thread, once or more.
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
  std::set<NcclWatched*> communicators_;
  std::jthread thread_;
};

}  // namespace strata::comm
