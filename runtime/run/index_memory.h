#pragma once
#include <cstddef>
#include <memory_resource>
#include <optional>

#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// The memory that a plan has for the index of packed sequences, if it has any; what does not come from there is the
// process's. Plan and executor outlive it, and it outlives the index.
class IndexMemory {
 public:
  IndexMemory(const StepPlan& plan, const Executor& executor) {
    if (plan.index_buffer < 0) return;
    planned_.emplace(executor.storage().view(plan.index_buffer, device::DType::fp32).data,
                     plan.buffers[static_cast<std::size_t>(plan.index_buffer)].bytes);
  }
  std::pmr::memory_resource* resource() { return planned_ ? &*planned_ : std::pmr::get_default_resource(); }

 private:
  std::optional<std::pmr::monotonic_buffer_resource> planned_;
};

}  // namespace strata::runtime
