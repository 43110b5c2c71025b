#include "device/cuda/event.h"

#include <algorithm>

#include "device/cuda/check.h"

namespace strata::device::cuda {

EventTwin::EventTwin(Device device) : device_(device) {
  (void)next();
}

bool EventTwin::StreamPoint::reached() {
  use(device);  // else a thread of the host that has no GPU yet would start the first, to ask about another
  const cudaError_t state = cudaEventQuery(event.get());
  if (state == cudaErrorNotReady) return false;
  STRATA_CUDA(state);
  expected.fetch_sub(1, std::memory_order_release);
  return true;
}

Event::Twin::Point& EventTwin::expect() {
  points_[newest_]->expected.fetch_add(1, std::memory_order_relaxed);
  return *points_[newest_];
}

cudaEvent_t EventTwin::next() {
  const auto is_free = [](const auto& point) { return point->expected.load(std::memory_order_acquire) == 0; };
  const auto found = std::find_if(points_.begin(), points_.end(), is_free);
  newest_ = static_cast<std::size_t>(found - points_.begin());
  if (found == points_.end()) {
    use(device_);
    points_.push_back(std::make_unique<StreamPoint>(device_));
  }
  return newest();
}

void EventTwin::signal(std::uint64_t n) {
  std::erase_if(waiting_, [n](const Waiting& w) {
    if (w.record <= n) w.flag.set(1);
    return w.record <= n;
  });
}

}  // namespace strata::device::cuda
