#pragma once
#include <functional>
#include <memory>

#include "device/lane.h"

namespace strata::device {

// Work of several lanes of a device, recorded once and then queued any number of times in one call: a CUDA graph.
// Addresses and arguments stay as recorded; values that change between launches must be read from memory. The lanes,
// and everything that the work refers to, must outlive it. Destroy it when none of its launches is running.
class Graph {
 public:
  // True if lanes of the device can be recorded. Host lanes cannot.
  static bool possible(Device device);

  // Calls issue(). Work that issue() queues in `lane`, and in lanes that wait for an event recorded in `lane` during
  // the call, is recorded and does not run. By its end, `lane` must have waited for all of these lanes. No lane may
  // wait for an earlier record, be stamped or synchronized, or get host work. An event recorded during the call must be
  // recorded again before anything else waits for it. Throws an Error{failed} with the device's message if the device
  // refuses the work; the recording is then gone, and the lanes are as before.
  Graph(Lane& lane, const std::function<void()>& issue);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // Queues all recorded work as one piece of the lane's work.
  void launch(Lane& lane) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// The implementation of a graph on one kind of device.
class Graph::Impl {
 public:
  virtual ~Impl() = default;
  virtual void launch(Lane& lane) = 0;
};

}  // namespace strata::device
