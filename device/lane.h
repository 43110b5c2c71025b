#pragma once
// device/ does the computing, on the CPU and on CUDA GPUs: memory (memory.h), lanes of work (here), events between
// lanes, and operations (ops/). cpu/ and cuda/ are twins under headers that name neither. backend.h and operations.h
// are the tables through which a lane finds its own twin, and comm/nccl/ is the only higher folder that uses a twin
// directly. numeric/ holds what both twins share bit for bit: dtypes, exact sums, random numbers, roundings
// (numeric/dtype.h first). A lane is an in-order queue, and an event orders two lanes; the folders above issue work and
// wait for nothing else. Open ops/products/product.h next for an operation, cpu/lane_impl.h or cuda/lane_impl.h for how
// a lane runs.

#include <cstdint>
#include <memory>
#include <string>

#include "base/abort.h"
#include "device/device.h"

namespace strata::device {

class Lane;

// A point in a lane's work that other lanes can wait for. The one host thread that issues work records it and waits for
// it. It may be recorded again every step, but in another lane only after the previous record was reached. A wait
// refers to the newest record issued before it; if there is none, it ends immediately. The event must outlive the work
// that refers to it.
class Event {
 public:
  // For lanes of `device` and of the host. If the host waits for a record in the device's lanes, the record costs more
  // and cannot be part of a graph. Without `host_waits`, only lanes of the device may wait for such records.
  explicit Event(Device device = {}, bool host_waits = true);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  // For an event that host lanes record: true if its newest record has been reached, or if it has no record. A wait
  // would then end immediately.
  bool passed() const;
  // For the same kind of event: blocks the issuing thread until it has been reached. Throws Aborted when the run's
  // token is set.
  void wait(const AbortToken& abort) const;

  class Twin;
  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct Operations;

// An in-order queue of device work: a stream on CUDA, a thread with a team of workers on the CPU. An operation takes
// the lane in which it runs, and the call returns before the operation has run. Work in different lanes overlaps, and
// only events order it. One host thread issues work; it waits if a lane's queue is full. The first exception thrown by
// a lane's work sets the abort token; from then on the run's lanes drop queued work.
class Lane {
 public:
  // `threads` includes the lane's own thread (on the CPU). `rank` is for error messages. The token outlives the lane.
  Lane(std::string name, int threads, int rank, AbortToken& abort, Device device = {});
  ~Lane();  // waits for the issued work
  Lane(Lane&&) noexcept;
  Lane& operator=(Lane&&) = delete;

  const std::string& name() const;
  int threads() const;
  AbortToken& abort() const;
  Device device() const;
  // The operations of the lane's twin, for the functions of device/ops/.
  const Operations& operations() const;

  void record(Event& event);
  void wait(const Event& event);
  // Queues writing the time at which the lane reaches this point, in ns of the steady clock. `where` is host memory; it
  // must stay valid until the lane is synchronized, after which it can be read.
  void stamp(std::int64_t* where);
  // Blocks until all issued work has run. Throws Aborted when the run's token is set.
  void synchronize();

  class Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// During its lifetime, names the work that the host issues, in a profiler's timeline: an NVTX range for lanes of a GPU,
// nothing for host lanes. It costs next to nothing if no profiler is attached.
class Range {
 public:
  Range(Lane& lane, const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Lane& lane_;
};

}  // namespace strata::device
