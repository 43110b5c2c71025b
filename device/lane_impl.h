#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"
#include "device/lane.h"

namespace strata::device {

namespace cpu {
class HostLane;
}
struct Operations;
class AlgorithmTable;

// The part of an event that concerns a device other than the host. Records and waits count from 1, as in Event::State.
class Event::Twin {
 public:
  virtual ~Twin() = default;

  // True if the device has reached record n, made by one of its lanes. Any thread may poll it. It must not call the
  // device's driver: the issuing thread may be blocked inside the driver until the caller has continued.
  virtual bool reached(std::uint64_t n) = 0;

  // Tells a waiting device that the host lane has reached record n. Called under the state's mutex.
  virtual void signal(std::uint64_t n) = 0;
};

struct Event::State {
  std::mutex mutex;
  std::condition_variable reached;
  std::uint64_t issued = 0;   // records issued; used only by the host thread
  std::uint64_t done = 0;     // records reached by host lanes; guarded by the mutex
  Kind recorder = Kind::cpu;  // the newest record's kind; used only by the host thread
  bool of_device = false;     // the newest record is in a device's lane; used only by the host thread
  bool host_waits = true;
  const void* lane = nullptr;  // the host lane that recorded last; used only by the host thread
  std::unique_ptr<Twin> twin;
};

// The implementation of a lane on one kind of device. Only the issuing host thread calls it.
class Lane::Impl {
 public:
  Impl(std::string lane_name, Device lane_device, int lane_rank, AbortToken& token, const Operations& table)
      : name(std::move(lane_name)), device(lane_device), rank(lane_rank), abort(token), operations(table) {}
  virtual ~Impl() = default;

  virtual int threads() const = 0;
  virtual void record(Event::State& event) = 0;
  virtual void wait(Event::State& event) = 0;
  virtual void stamp(std::int64_t* where) = 0;
  virtual void synchronize() = 0;

  // Implements device::Range.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}

  // Host work in this lane's order is queued between these two calls, in the host lane that begin_host_work() returns.
  virtual cpu::HostLane& begin_host_work() = 0;
  virtual void end_host_work() = 0;

  // The algorithms that this lane's products use (device/algorithm_table.h). Does nothing if the twin has no choice.
  virtual void use_algorithms(const std::shared_ptr<const AlgorithmTable>&) {}

  const std::string name;
  const Device device;
  const int rank;
  AbortToken& abort;
  const Operations& operations;
};

}  // namespace strata::device
