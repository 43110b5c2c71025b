#pragma once
#include <memory>

#include "base/abort.h"
#include "device/device.h"

namespace strata::device {

// While it lives, a device that fails sets the token, with what the driver says. Lanes of the host that wait for lanes
// of the device cannot ask (Event::Twin::reached), and the thread that issues may be waiting for those. A thread, on
// which nobody waits, as the driver may hold it up; nothing on the CPU. The token outlives it.
class FaultWatch {
 public:
  FaultWatch(Device device, int rank, AbortToken& abort);
  ~FaultWatch();

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class FaultWatch::Impl {
 public:
  virtual ~Impl() = default;
};

}  // namespace strata::device
