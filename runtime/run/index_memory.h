#pragma once
#include <cstddef>
#include <memory_resource>
#include <optional>

#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// The plan's memory for the index and labels of the sequences (Sequences::keep_in). If the plan has any, sequences take
// all of it from there; if the plan was made without looking at the data, they use the process's memory. Plan and
// executor must outlive it, and it must outlive the sequences.
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
