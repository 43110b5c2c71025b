#pragma once
#include <functional>
#include <memory>

#include "device/lane.h"

namespace strata::device {

// Work of several lanes of a device, recorded once and then queued as often as wanted in one call: a CUDA graph.
// Addresses and arguments stay those of the recording; what changes from launch to launch is read from memory.
// The lanes, and all that the work refers to, outlive it; destroyed when no launch of it runs any more.
class Graph {
 public:
  // Whether lanes of the device can be recorded; those of the host cannot.
  static bool possible(Device device);

  // Calls issue(): what it queues in `lane`, and in lanes that wait for an event that `lane` recorded meanwhile, is
  // recorded and does not run. By its end `lane` has waited for them all. No lane may wait for what was recorded
  // before, nor be stamped, synchronized or given work of the host. An event recorded meanwhile is recorded again
  // before anything else waits for it. Throws Error{failed}, in the device's words, where the device refuses the work;
  // what was recorded is gone then, and the lanes are as they were.
  Graph(Lane& lane, const std::function<void()>& issue);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // Queues all of it as one piece of the lane's work.
  void launch(Lane& lane) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// What a graph is on one kind of device.
class Graph::Impl {
 public:
  virtual ~Impl() = default;
  virtual void launch(Lane& lane) = 0;
};

}  // namespace strata::device
