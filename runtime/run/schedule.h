#pragma once
#include <cstdint>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The learning rate of step `step` in 1 .. max_steps: peak * step / warmup during warmup, then scheduler.name's decay
// to peak * min_lr_ratio at max_steps (docs/guide.md, "What a step means").
double learning_rate(const Recipe::Scheduler& scheduler, double peak, std::int64_t max_steps, std::int64_t step);

}  // namespace strata::runtime
