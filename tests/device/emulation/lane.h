#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cpu/lane_impl.h"
#include "tests/device/emulation/capture.h"

// A stream of the emulated run-time library: the work of one lane, in order.
struct CUstream_st {
  virtual void submit(std::function<void()> work) = 0;

 protected:
  ~CUstream_st() = default;
};

namespace strata::device::emulation {

// If set, called with the name of every device::Range that this thread begins.
inline thread_local std::function<void(const std::string& name)> on_range;

// A lane of Kind::cuda that runs its kernels on the host: all its work runs in a host lane.
class EmulatedLane final : public Lane::Impl, public CUstream_st {
 public:
  EmulatedLane(const std::string& lane_name, Device lane_device, int team, int lane_rank, AbortToken& token,
               const Operations& table)
      : Impl(lane_name, lane_device, lane_rank, token, table), host_(lane_name, team, lane_rank, token) {}

  int threads() const override { return host_.threads(); }
  void record(Event::State& event) override;
  void wait(Event::State& event) override;
  void stamp(std::int64_t* where) override;
  void synchronize() override;
  void begin_range(const char* range) override;
  cpu::HostLane& begin_host_work() override;  // without access to device memory
  void end_host_work() override {}

  // Runs with access to device memory. During a capture, work is recorded instead.
  void submit(std::function<void()> work) override;
  // A host lane with the same number of threads. Submitted work runs the CPU's operations there and waits for them.
  Lane& host_lane();

  // The lane is in this capture until the capture is over.
  void begin_capture(std::shared_ptr<Capture> capture);
  std::size_t captured_last() const { return last_; }

 private:
  bool capturing();
  void require_running(const char* what);
  void add_captured(std::function<void()> work, std::vector<std::size_t> after);

  std::shared_ptr<Capture> capture_;
  std::size_t last_ = 0;  // of this lane, in it

  // Owned here rather than by the host lane's queue, which holds plain bytes and drops them after a failure.
  std::mutex mutex_;
  std::deque<std::function<void()>> queued_;
  std::unique_ptr<Lane> inner_;  // host_lane(); before the lane that uses it
  cpu::HostLane host_;
};

}  // namespace strata::device::emulation
