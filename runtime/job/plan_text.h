#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// "horizontal" or "vertical", whichever order the plan has.
std::string_view order_name(const StepPlan& plan);

// "parameters of units above 1.50 GiB gathered in tiles"; empty if no unit is.
std::string tiling_text(const StepPlan& plan);

// "device 1.50 GiB, host 320.0 MiB": the peak of each tier that is used.
std::string memory_text(const Memory& memory);
// As above, with tier_title() for the tiers' names.
std::string memory_text(const StepPlan& plan);
// A tier's name in messages to users: kTierNames, except that a CPU's device tier is "RAM for the model".
std::string_view tier_title(std::size_t tier, bool on_cpu);

}  // namespace strata::runtime
