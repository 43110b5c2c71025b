#include "device/fault_watch.h"

#include "device/backend.h"

namespace strata::device {

FaultWatch::FaultWatch(Device device, int rank, AbortToken& abort) {
  if (const auto make = backend(device.kind).make_fault_watch) impl_ = make(device, rank, abort);
}
FaultWatch::~FaultWatch() = default;

}  // namespace strata::device
