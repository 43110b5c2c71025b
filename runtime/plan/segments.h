#pragma once
#include <vector>

#include "models/model.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Blocks whose forward is run again together: [first, last] in units; kept ones have recompute = false.
struct Segment {
  int first, last;
  bool recompute;
};
// Cuts the model's blocks, which are the units that have an input and an output, as training.recompute says; of those
// below the lowest unit that trains nothing is run again. Throws Error{usage} for a block that is not there.
std::vector<Segment> segments_of(const Recompute& recompute, const models::Model& model);

}  // namespace strata::runtime
