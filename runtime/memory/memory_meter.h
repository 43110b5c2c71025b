#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// Memory as it was seen while buffers came and went; the same form as the plan's prediction.
class MemoryMeter {
 public:
  explicit MemoryMeter(const StepPlan& plan);
  // The task is issued: its buffers that were not alive come to life, those that it uses last end after it.
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
