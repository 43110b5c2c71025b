#pragma once
#include <cstddef>
#include <memory_resource>
#include <optional>

#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// The memory that a plan has for what sequences keep (Sequences::keep_in), if it has any: all of it comes from there.
// If the plan was made without looking at the data, it is the process's. Plan and executor outlive it, and it outlives
// the sequences.
class IndexMemory {
 public:
  IndexMemory(const StepPlan& plan, const Executor& executor) {
    if (plan.index_buffer < 0) return;
    planned_.emplace(executor.storage().view(plan.index_buffer, device::DType::fp32).data,
                     plan.buffers[static_cast<std::size_t>(plan.index_buffer)].bytes, std::pmr::null_memory_resource());
  }
  std::pmr::memory_resource* resource() { return planned_ ? &*planned_ : std::pmr::get_default_resource(); }

 private:
  std::optional<std::pmr::monotonic_buffer_resource> planned_;
};

}  // namespace strata::runtime
