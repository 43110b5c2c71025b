#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/flags.h"
#include "device/lane_impl.h"

namespace strata::device::cuda {

// An event of lanes of a GPU and of the host: a CUDA event between streams, flags between streams and the host. So a
// host lane never calls CUDA, which avoids a deadlock: the call could wait for the issuing thread, which CUDA may block
// (while it loads a kernel, or while a stream is full) until that lane's work is done.
class EventTwin final : public Event::Twin {
 public:
  EventTwin(Device device, bool host_waits);

  bool reached(std::uint64_t n) override { return recorded_->get() >= n; }
  void signal(std::uint64_t n) override;

  // For the issuing thread.
  void record(cudaStream_t stream, std::uint64_t n);
  bool host_waits() const { return recorded_.has_value(); }
  cudaEvent_t newest() const { return event_.get(); }
  // Sets the flag once the host lane has reached record n. Call it under the state's mutex.
  void set_at(std::uint64_t n, Flag flag) { waiting_.push_back({n, std::move(flag)}); }

 private:
  struct Waiting {
    std::uint64_t record;
    Flag flag;
  };

  StreamEvent event_;
  std::optional<Flag> recorded_;  // the newest record that a stream has reached; none if the host does not wait
  std::vector<Waiting> waiting_;
};

}  // namespace strata::device::cuda
