#pragma once
#include "runtime/job/make_job.h"

namespace strata::runtime {

// Whether parameters, gradients and optimizer state of a training run with this layout, without anything else, fit
// their tiers. Takes no time and needs no plan; if it is false, no plan of the recipe fits.
bool state_may_fit(const Recipe& recipe, const Layout& layout, const Capacity& capacity);
// False if no plan of the recipe fits, or if each of several ranks would update more elements than any step can hide.
// Such a plan is not worth making: for 1T unsharded parameters it has millions of tasks and takes a minute.
bool is_worth_planning(const Recipe& recipe, const Layout& layout, const Capacity& capacity);

}  // namespace strata::runtime
