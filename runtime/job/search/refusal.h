#pragma once
#include <string>
#include <vector>

#include "runtime/job/search/suggestion.h"

namespace strata::runtime {

// The sentence that refuses a plan: what it needs, what is available, and what would fit.
std::string refusal(const Job& job, const Capacity& capacity, const std::vector<Suggestion>& nearest);

}  // namespace strata::runtime
