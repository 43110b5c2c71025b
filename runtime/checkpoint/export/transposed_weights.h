#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The weights of a model for another one of the same tensors, some of whose matrices are stored transposed: GPT-2's as
// transformers has them, of a model that bitsandbytes quantised. `weights` and `from` must outlive the result, which
// keeps one matrix in memory.
std::unique_ptr<WeightSource> transposed_weights(const WeightSource& weights, const models::Model& from,
                                                 const models::Model& to);

}  // namespace strata::runtime
