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

// A communicator as the watch sees it. The watch calls it on a thread whose current device is the lane's.
class NcclWatched {
 public:
  // Returns an error that NCCL has reported since the last call, or a message if, for longer than `timeout`, NCCL has
  // been connecting, or no collective completed although some were in flight. Empty if nothing is wrong. Calls no CUDA
  // function, because the issuing thread may be inside CUDA until the watch ends what its stream waits for.
  virtual std::string find_failure(std::chrono::milliseconds timeout) = 0;
  // Gives up the ncclComm_t to a caller that aborts or destroys it; no call uses it any more. Null if it is already
  // gone.
  virtual ncclComm_t take() = 0;

 protected:
  ~NcclWatched() = default;
};

// Watches a run in which the host waits for lanes, lanes wait for NCCL, and NCCL waits for other ranks. Its thread sets
// the abort token if one of these fails, has ended, or hangs for longer than `timeout`. Once the token is set, it
// aborts the operations that NCCL has in flight. `device` is the device of all communicators.
class NcclWatch {
 public:
  NcclWatch(World& world, device::Device device, std::chrono::milliseconds timeout);
  ~NcclWatch();

  // The communicator is watched until it is removed.
  void add(NcclWatched& communicator);
  void remove(NcclWatched& communicator);

  // Aborts the operations in flight of all communicators, which are unusable afterwards. Returns when NCCL has released
  // them, even if another thread began the abort. Any thread may call it, any number of times.
  void abort_all() noexcept;

 private:
  void run();
  void look();
  void abort_all_locked() noexcept;

  World& world_;
  const device::Device device_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stop_ = false;
  std::set<NcclWatched*> communicators_;
  std::jthread thread_;
};

}  // namespace strata::comm
