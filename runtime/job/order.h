#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// memory.order = "auto": one step planned in both orders, and which of the two is taken.
//
// The order that takes less memory (device and host together), unless the other is faster, on a nominal machine of the
// plan's kind, by what it costs: 5% for each 10% of memory. If the two are alike in both, the one that moves less. If
// only one fits, that one; if none does, the one of less memory. An order that takes more of the device than the other
// is not taken if that is more than `device_limit()` says (bytes); it is asked only then.
struct OrderedPlan {
  const StepPlan& plan;
  bool fits;
};
bool takes_vertical(const OrderedPlan& horizontal, const OrderedPlan& vertical,
                    const std::function<std::size_t()>& device_limit);

// The same recipe with one choice of zero.* less: a lower stage, or one state a tier nearer to the device. Those that
// move state, or share it out, to save the device's memory must not take more of it than each of these: that is the
// limit above.
std::vector<Recipe> with_less_moved(const Recipe& recipe, int ranks);

}  // namespace strata::runtime
