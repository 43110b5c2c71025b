#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The weights of a model for another one with the same tensors, some of which are stored transposed: from a GPT-2 that
// bitsandbytes quantised to GPT-2 as transformers stores it. `weights` and `from` must outlive the result, which keeps
// one matrix in memory.
std::unique_ptr<WeightSource> transposed_weights(const WeightSource& weights, const models::Model& from,
                                                 const models::Model& to);

}  // namespace strata::runtime
