#pragma once
#include <memory>

#include "base/abort.h"
#include "device/device.h"

namespace strata::device {

// While one of these lives, a device that fails sets the token, with the driver's message. Host lanes that wait for
// lanes of the device cannot query the driver (Event::Twin::reached), and the issuing thread may be waiting for those
// lanes. So this is a thread of its own, for which nobody waits, because the driver may block it. On the CPU it does
// nothing. The token outlives it.
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
