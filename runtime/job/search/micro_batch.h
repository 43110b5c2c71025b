#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "device/device.h"
#include "runtime/job/make_job.h"

namespace strata::runtime {

// A micro-batch size in sequences, and the memory that a step with it takes.
struct PlannedBatch {
  std::int64_t size;
  Memory memory;
};

// The largest micro-batch for which a step of the recipe fits, and the next larger allowed size, which does not fit,
// both found by planning; with the memory of the pipeline stage that needs the most. `fits` is empty if one sequence is
// too much, `too_large` if no larger size is allowed.
struct LargestBatch {
  std::optional<PlannedBatch> fits, too_large;

  // The size to plan with for a report: the largest that fits, or otherwise the smallest that was tried.
  std::int64_t size() const { return (fits ? fits : too_large)->size; }
};
// Tries any size if the recipe has training.gradient_accumulation_steps or neither key, and the divisors of a rank's
// share if it has training.global_batch_size, but none that training.reduce_group, the interleaved schedule or
// parallel.sequence excludes. Throws Error{usage} if that batch does not divide evenly over the ranks,
// and what make_job() throws.
LargestBatch largest_micro_batch(const Workload& workload, int ranks, const Capacity& capacity);

// The recipe with this number in place of training.micro_batch_size.
Recipe with_micro_batch(Recipe recipe, std::int64_t size);

// The number for training.micro_batch_size, and a sentence about how it was chosen.
struct ResolvedBatch {
  std::int64_t size;
  std::string text = {};
};
// training.micro_batch_size = auto is the number in the checkpoint that the run resumes from. Without one, it is the
// largest that fits memory.device (and memory.host, if the recipe sets it), or the smallest if none fits; the caller
// then refuses that like any recipe. The memory that is free at the moment does not count, so that the number is
// reproducible. The sentence is empty if the recipe has a number or none fits. Throws as largest_micro_batch(), and if
// a checkpoint cannot be read.
ResolvedBatch resolve_micro_batch(const Workload& workload, int ranks, device::Device device);
// Like resolve_micro_batch(), but without a model: returns only the number of the checkpoint that the run resumes from.
// nullopt if there is none, or if the recipe has a number.
std::optional<ResolvedBatch> resume_micro_batch(const Recipe& recipe);

}  // namespace strata::runtime
