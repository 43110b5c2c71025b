#pragma once
#include "runtime/job/make_job.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Predicts, as far as the plan depends on it, where a training will begin: after the checkpoint that start_or_resume()
// will choose. Reads manifests, and on `threads` threads also a whole checkpoint if it has no evaluation but an older
// one has, because the run resumes from that if the newer one is damaged. What cannot be read is left to
// start_or_resume(). The recipe must be settled.
Beginning planned_beginning(const Recipe& recipe, int threads);

// parallel.tensor_shards of the newest checkpoint that the recipe resumes from; 0: there is none, or it cannot be read.
std::int64_t resumed_shards(const Recipe& recipe);

}  // namespace strata::runtime
