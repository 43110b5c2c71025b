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

// The device's work of a step, between host_write and host_read, recorded once and launched in one call per step. Work
// that crosses the step's boundary is ordered by the launches: one begins when the previous one has ended.
class StepGraph {
 public:
  // Whether every step consists of the same device work, with host tasks only before and after it.
  static bool possible(const StepPlan& plan);

  // The lanes must outlive it.
  StepGraph(const StepPlan& plan, const Lanes& lanes);

  // Records the work that issue() queues, without running it. Returns false if the device refuses, now or earlier.
  bool record(const std::function<void()>& issue);
  bool recorded() const { return graph_.has_value(); }
  // The device's message if it refused; otherwise empty.
  const std::string& refusal() const { return refusal_; }
  void launch();
  void reset() { graph_.reset(); }

 private:
  device::Lane& first_;
  std::vector<device::Lane*> others_;
  device::Event begun_;
  std::vector<device::Event> ended_;  // one per lane of others_
  std::optional<device::Graph> graph_;
  std::string refusal_;
};

}  // namespace strata::runtime
