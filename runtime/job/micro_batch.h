#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "device/device.h"
#include "runtime/job/make_job.h"

namespace strata::runtime {

// A size of micro-batch, in sequences, and what a step with it takes.
struct PlannedBatch {
  std::int64_t size;
  Memory memory;
};

// The largest micro-batch with which a step of the recipe fits, found by planning; and the next larger one that it
// could have been, which does not. Neither: not even one sequence fits, or nothing larger is allowed.
struct LargestBatch {
  std::optional<PlannedBatch> fits, too_large;
};
// Any size if the recipe has training.gradient_accumulation_steps or nothing; if it has training.global_batch_size, one
// that divides what is each rank's part of it. Throws Error{usage} if the ranks have no equal parts of it, and what
// make_job() throws.
LargestBatch largest_micro_batch(const Workload& workload, int ranks, const Capacity& capacity);

// Replaces training.micro_batch_size = auto by a number: that of the checkpoint that the run resumes from, else the
// largest that fits memory.device, and memory.host if the recipe has it; what this machine has free does not count, so
// that the number is the same tomorrow. 1 if none fits, which is then refused as any recipe is. Returns a sentence on
// it; empty if the recipe has a number, or none fits. Throws as largest_micro_batch(), and if checkpoints cannot be
// read.
std::string settle_micro_batch(Workload& workload, int ranks, device::Device device);
// The same if a checkpoint has the number, for which no model is needed; else leaves it as it is and returns nothing.
std::string resume_micro_batch(Recipe& recipe);

}  // namespace strata::runtime
