#pragma once
#include "runtime/job/make_job.h"

namespace strata::runtime {

// Whether parameters, gradients and optimizer state of a training have room in their tiers by themselves, of a model
// with this layout on layout.ranks ranks. At once and without a plan; false: no plan of the recipe fits.
bool state_may_fit(const Recipe& recipe, const Layout& layout, const Capacity& capacity);

}  // namespace strata::runtime
