#include "device/cuda/event.h"

#include "device/cuda/check.h"

namespace strata::device::cuda {
namespace {

StreamEvent make_event(Device device) {
  use(device);
  return make_ordering_event();
}

}  // namespace

EventTwin::EventTwin(Device device, bool host_waits) : event_(make_event(device)) {
  if (host_waits) recorded_ = take_flag();
}

void EventTwin::record(cudaStream_t stream, std::uint64_t n) {
  STRATA_CUDA(cudaEventRecord(event_.get(), stream));
  if (recorded_) write(stream, *recorded_, n);
}

void EventTwin::signal(std::uint64_t n) {
  std::erase_if(waiting_, [n](const Waiting& w) {
    if (w.record <= n) w.flag.set(1);
    return w.record <= n;
  });
}

}  // namespace strata::device::cuda
