#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Measures memory as buffers begin and end, in the same form as the plan's prediction.
class MemoryMeter {
 public:
  explicit MemoryMeter(const StepPlan& plan);
  // Counts the issue of a task: its buffers that are not alive begin, and those of which this is the last use end.
  void issue(std::size_t task);
  const Memory& peak() const { return peak_; }

 private:
  void begin(std::size_t buffer);
  const StepPlan& plan_;
  std::vector<bool> alive_;
  std::vector<std::size_t> uses_left_, uses_;
  std::array<std::array<std::size_t, kKinds>, kTiers> now_{};
  Memory peak_{};
};

}  // namespace strata::runtime
