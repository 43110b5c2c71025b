#pragma once
#include <cstddef>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"

namespace strata::runtime {

// The share of a call's products in stretch `i`. Products are divided evenly among the stretches that have some
// (Seam::has_products). If ranks divide the rows, these are the ones that end in a sum; the last stretch has none.
double share_of_products(const std::vector<models::Seam>& seams, std::size_t i);

// Adds the buffer in which a call of the unit leaves its partial sums, piece or rows at a seam.
int add_partial(Draft& draft, int unit, const models::Seam& seam);

// Adds the task at the seam that follows the call's stretch. `parameters`, `frozen`: the unit's pools, of which one has
// the seam's bias. Returns the buffer of the total.
int add_total(Draft& draft, const Call& call, const models::Seam& seam, int partial, int parameters, int frozen);

}  // namespace strata::runtime
