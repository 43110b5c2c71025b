#pragma once
#include <deque>
#include <functional>
#include <mutex>

#include "device/cpu/lane_impl.h"

// A stream of the emulated run-time library: the work of one lane, in order.
struct CUstream_st {
  virtual void submit(std::function<void()> work) = 0;

 protected:
  ~CUstream_st() = default;
};

namespace strata::device::emulation {

// A lane of Kind::cuda that runs its kernels on the host: all its work is that of a host lane.
class EmulatedLane final : public Lane::Impl, public CUstream_st {
 public:
  EmulatedLane(const std::string& lane_name, Device lane_device, int team, int lane_rank, AbortToken& token,
               const Operations& table)
      : Impl(lane_name, lane_device, lane_rank, token, table), host_(lane_name, team, lane_rank, token) {}

  int threads() const override { return host_.threads(); }
  void record(Event::State& event) override { host_.record(event); }
  void wait(Event::State& event) override { host_.wait(event); }
  void stamp(std::int64_t* where) override { host_.stamp(where); }
  void synchronize() override { host_.synchronize(); }
  cpu::HostLane& begin_host_work() override { return host_; }  // without access to device memory
  void end_host_work() override {}

  // With access to it.
  void submit(std::function<void()> work) override;
  // What the CPU's twin queues in between has it too.
  void begin_device_work();
  void end_device_work();

 private:
  // Owned here and not by the host lane's queue, which holds plain bytes and drops them after a failure.
  std::mutex mutex_;
  std::deque<std::function<void()>> queued_;
  cpu::HostLane host_;
};

}  // namespace strata::device::emulation
