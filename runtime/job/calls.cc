#include <algorithm>

#include "base/error.h"
#include "runtime/job/requirements.h"

namespace strata::runtime {
namespace {

constexpr std::int64_t kMaxCallsOfRanks = 1 << 28;

// The units of the largest stage, with its embedding or head.
std::int64_t units_of_stage(const Recipe::Parallel& parallel, std::size_t units) {
  const auto all = static_cast<std::int64_t>(units), stages = std::int64_t{parallel.stages};
  if (stages == 1) return all;
  std::int64_t most = (all + stages - 1) / stages;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    std::int64_t blocks = 0;
    for (std::size_t i = static_cast<std::size_t>(stage); i < parallel.split.size();
         i += static_cast<std::size_t>(stages))
      blocks += parallel.split[i];
    most = std::max(most, blocks);
  }
  return std::min(all, most + 1);
}

}  // namespace

std::int64_t calls_of(const Recipe& recipe, std::size_t units, std::int64_t micro_batches) {
  return units_of_stage(recipe.parallel, units) * micro_batches;
}

bool plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches) {
  const bool vertical = recipe.memory.order == AccumulationOrder::vertical;
  return calls_of(recipe, units, micro_batches) <= (vertical ? kMaxVerticalCalls : kMaxCalls);
}

void require_plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches, int ranks) {
  if (!plannable(recipe, units, micro_batches))
    fail(Exit::usage,
         "{} micro-batches per rank and step (training.gradient_accumulation_steps or global_batch_size) through {} "
         "units of {}: a plan has at most {} calls of units, and {} with memory.order=vertical; use larger "
         "micro-batches (training.micro_batch_size)",
         micro_batches, units_of_stage(recipe.parallel, units), recipe.parallel.stages == 1 ? "the model" : "a stage",
         kMaxCalls, kMaxVerticalCalls);
  const std::int64_t calls = calls_of(recipe, units, micro_batches);
  if (calls > kMaxCallsOfRanks / ranks)
    fail(Exit::usage,
         "{} ranks with {} calls of units each per step exceed what a plan can count ({}): plan fewer ranks", ranks,
         calls, kMaxCallsOfRanks);
}

}  // namespace strata::runtime
