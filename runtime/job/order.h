#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// memory.order = "auto": plans one step in both orders and takes one of them.
//
// The order with less memory (device and host together) wins, unless the other gains at least half as much speed as it
// adds memory, on a nominal machine of the plan's kind: 5% for each 10%. If both are alike, the order that moves fewer
// bytes wins. If only one order fits, it is taken; if neither does, the one with less memory. An order that needs more
// device memory than the other must also stay within device_limit() bytes, which is called only in that case.
struct OrderedPlan {
  const StepPlan& plan;
  bool fits;
};
bool takes_vertical(const OrderedPlan& horizontal, const OrderedPlan& vertical,
                    const std::function<std::size_t()>& device_limit);

// Returns the recipe with one choice of zero.* undone at a time: a lower stage, or one state a tier nearer to the
// device. A recipe that moves or shards state to save device memory must not use more of it than any of these; they
// give takes_vertical() its limit.
std::vector<Recipe> with_less_moved(const Recipe& recipe, int ranks);

}  // namespace strata::runtime
