#pragma once
#include <vector>

#include "models/model.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Consecutive units [first, last] whose forward is run again together in backward; if `recompute` is false, their saved
// activations are kept instead.
struct Segment {
  int first, last;
  bool recompute;
};
// Cuts the model's blocks (the units with an input and an output) into segments, as training.recompute says. Units
// below the lowest that trains have no backward, so they are in no segment. Throws Error{usage} for a block that does
// not exist.
std::vector<Segment> segments_of(const Recompute& recompute, const models::Model& model);

}  // namespace strata::runtime
