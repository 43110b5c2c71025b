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

// The part of an event that another device than the host knows. Records and waits count from 1, as in Event::State.
class Event::Twin {
 public:
  virtual ~Twin() = default;

  // Whether the device got to record n, which one of its lanes made; any thread asks, until it is true. Must not call
  // the device's driver: the thread that issues may be in there until the one that asks has gone on.
  virtual bool reached(std::uint64_t n) = 0;

  // The host's lane has reached record n; called under the state's mutex. For a waiting device.
  virtual void signal(std::uint64_t n) = 0;
};

struct Event::State {
  std::mutex mutex;
  std::condition_variable reached;
  std::uint64_t issued = 0;   // records issued; the host thread's alone
  std::uint64_t done = 0;     // records reached by host lanes; under the mutex
  Kind recorder = Kind::cpu;  // of the newest record; the host thread's alone
  bool of_device = false;     // the newest record is of a device's lane; the host thread's alone
  bool host_waits = true;
  const void* lane = nullptr;  // the host lane that recorded last; the host thread's alone
  std::unique_ptr<Twin> twin;
};

// What a lane is on one kind of device. Called by the one host thread that issues.
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

  // What device::Range says.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}

  // Work of the host in this lane's order: queued in the host lane that begin_host_work() gives, between the two.
  virtual cpu::HostLane& begin_host_work() = 0;
  virtual void end_host_work() = 0;

  // Algorithms that products of this lane use (device/algorithm_table.h); nothing if a twin has no choice of them.
  virtual void use_algorithms(const std::shared_ptr<const AlgorithmTable>&) {}

  const std::string name;
  const Device device;
  const int rank;
  AbortToken& abort;
  const Operations& operations;
};

}  // namespace strata::device
