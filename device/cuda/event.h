#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/flags.h"
#include "device/lane_impl.h"

namespace strata::device::cuda {

// An event of lanes of a GPU and of the host: CUDA's events among streams and from streams to the host, flags from the
// host to streams. All but signal() and Point::reached() belong to the thread that issues.
class EventTwin final : public Event::Twin {
 public:
  explicit EventTwin(Device device);

  Point& expect() override;
  void signal(std::uint64_t n) override;

  // CUDA's event to record next, and the newest recorded.
  cudaEvent_t next();
  cudaEvent_t newest() const { return points_[newest_]->event.get(); }
  // Sets the flag once the host's lane has reached record n; under the state's mutex.
  void set_at(std::uint64_t n, Flag flag) { waiting_.push_back({n, std::move(flag)}); }

 private:
  struct StreamPoint final : Point {
    explicit StreamPoint(Device of) : device(of), event(make_ordering_event()) {}
    bool reached() override;
    const Device device;
    const StreamEvent event;
    std::atomic<int> expected{0};  // waits of hosts that refer to it: it is not recorded anew before they are over
  };
  struct Waiting {
    std::uint64_t record;
    Flag flag;
  };

  const Device device_;
  std::vector<std::unique_ptr<StreamPoint>> points_;
  std::size_t newest_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace strata::device::cuda
