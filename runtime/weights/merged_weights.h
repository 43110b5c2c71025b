#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// The weights of `plain`, a model without adapters: those of `adapted`, the same model with them, whose source is
// `weights`, with W + s B A in fp32 in W's place. Both models outlive it.
std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                             const models::Model& plain);

// Reads all that is frozen, and throws Error{usage} if its BaseHash is not the one that the source wants.
void verify_base(const WeightSource& weights, const models::Model& model);

}  // namespace strata::runtime
