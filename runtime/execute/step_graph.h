#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/graph.h"
#include "device/lane.h"
#include "runtime/execute/lanes.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// A step's work of the device, which is all that lies between host_write and host_read, recorded once and launched in
// one call a step. What crosses the step's border its launches order: one begins when the one before has ended.
class StepGraph {
 public:
  // Whether every step is the same work of the device alone, but for what the host's lane does before and after it.
  static bool possible(const StepPlan& plan);

  // The lanes outlive it.
  StepGraph(const StepPlan& plan, const Lanes& lanes);

  // Records what issue() queues; tried once until reset(). Nothing of it runs. False where the device refuses.
  bool record(const std::function<void()>& issue);
  bool recorded() const { return graph_.has_value(); }
  // Why the device refused; empty where it did not.
  const std::string& refusal() const { return refusal_; }
  void launch();
  void reset() { graph_.reset(); }

 private:
  device::Lane& first_;
  std::vector<device::Lane*> others_;
  device::Event begun_;
  std::vector<device::Event> ended_;  // of others_
  std::optional<device::Graph> graph_;
  std::string refusal_;
};

}  // namespace strata::runtime
