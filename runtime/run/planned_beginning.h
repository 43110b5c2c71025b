#pragma once
#include "runtime/job/make_job.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Where a training will begin, before it is planned: after the checkpoint that start_or_resume() will find to be whole,
// as far as the plan depends on it. Reads manifests; and all of a checkpoint, on `threads` threads, if there is no
// evaluation after it, but one after an older checkpoint, from which the run goes on if that one is damaged. What
// cannot be read is left to start_or_resume(). The recipe is settled.
Beginning planned_beginning(const Recipe& recipe, int threads);

}  // namespace strata::runtime
