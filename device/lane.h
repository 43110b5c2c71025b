#pragma once
// device/ is what computes: memory (memory.h), lanes of work (here), events between lanes, and operations (ops/), each
// on the CPU and on CUDA GPUs. cpu/ and cuda/ are twins behind headers that name neither: backend.h and operations.h
// are the tables through which a lane finds its own, and of the folders above only comm/nccl/ looks into a twin.
// numeric/ holds what both twins share to the bit: dtypes, exact sums, random numbers, roundings (numeric/dtype.h
// first). A lane is an in-order queue, and an event orders two of them; the folders above issue work and wait for
// nothing else. Open ops/product.h next for an operation, cpu/lane_impl.h or cuda/lane_impl.h for how a lane runs.

#include <cstdint>
#include <memory>
#include <string>

#include "base/abort.h"
#include "device/device.h"

namespace strata::device {

class Lane;

// A point in a lane's work that other lanes can wait for. Recorded and waited for by the one host thread that issues
// work; may be recorded again every step, in another lane only after the record before was reached. A wait refers to
// the newest record issued before it; with none it is over at once. Must outlive the work that refers to it.
class Event {
 public:
  // For lanes of `device` and of the host. A record of the device's lanes costs more where the host waits for it, and
  // is then no part of a graph: without `host_waits`, only lanes of the device may wait for theirs.
  explicit Event(Device device = {}, bool host_waits = true);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  // Of an event that lanes of the host record: whether its newest record is behind them, so that a wait is over at
  // once. True if there is none.
  bool passed() const;
  // Of the same: blocks the thread that issues until it is. Throws Aborted when the run's token is set.
  void wait(const AbortToken& abort) const;

  class Twin;
  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct Operations;

// An in-order queue of device work: a stream on CUDA, a thread with a team of workers on the CPU. Operations take the
// lane they run in and return before they ran. Work of different lanes overlaps and is ordered by events alone.
// One host thread issues; a lane whose queue is full makes it wait. The first exception thrown by work of a lane sets
// the abort token; from then on the lanes of the run drop what is queued.
class Lane {
 public:
  // `threads` includes the lane's own thread (of the CPU); `rank` is named in errors. The token outlives the lane.
  Lane(std::string name, int threads, int rank, AbortToken& abort, Device device = {});
  ~Lane();  // waits for the work issued
  Lane(Lane&&) noexcept;
  Lane& operator=(Lane&&) = delete;

  const std::string& name() const;
  int threads() const;
  AbortToken& abort() const;
  Device device() const;
  // Of the twin that the lane runs: for device/ops/.
  const Operations& operations() const;

  void record(Event& event);
  void wait(const Event& event);
  // Writes the time at which the lane got here, in ns of the steady clock; `where` is host memory and stays valid until
  // the lane was synchronized, which is when it can be read.
  void stamp(std::int64_t* where);
  // Blocks until all issued work has run; throws Aborted when the run's token is set.
  void synchronize();

  class Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Gives what the host issues while it lives a name in a profiler's timeline: NVTX for lanes of a GPU, nothing for those
// of the host. Costs next to nothing if no profiler is attached.
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
