#pragma once
#include <atomic>
#include <functional>

#include "comm/communicator.h"
#include "device/cpu/lane_impl.h"
#include "device/lane.h"

namespace strata::launcher {

// Calls `work` repeatedly in a lane of its own until this object is destroyed.
class BackgroundLoad {
 public:
  BackgroundLoad(const std::function<void()>& work, comm::World& world)
      : lane_("calibrate meanwhile", 1, world.rank(), world.abort_token()) {
    device::cpu::submit(lane_, [this, &work](device::cpu::Team&) {
      for (; !stop_; ++calls_) work();
    });
  }
  ~BackgroundLoad() { stop_ = true; }
  double calls() const { return static_cast<double>(calls_); }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<long> calls_ = 0;
  device::Lane lane_;  // declared last: destroyed first, after its work is done
};

}  // namespace strata::launcher
