#pragma once
#include <memory>

#include "base/abort.h"
#include "device/device.h"

namespace strata::device {

// During its lifetime, sets the token if the device fails, with the driver's message. Host lanes that wait for lanes of
// the device cannot query the driver (Event::Twin::reached), and the issuing thread may be waiting for those lanes. So
// a separate thread queries it. No other thread waits for this thread, because the driver may block it. On the CPU,
// this class does nothing. The token must outlive it.
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
