#pragma once
// runtime/weights/adapter/ holds what weights have to do with LoRA and DoRA: adapters merged into their model (here),
// peft's folders (peft_folder.h, peft_config.h), and DoRA's magnitudes as they begin (magnitudes.h, row_norms.h).

#include <memory>

#include "models/model.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// The weights of `plain`, a model without adapters, computed from `weights`, the source of the same model with adapters
// (`adapted`): W + s B A in fp32 takes W's place. Both models must outlive the result.
std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                             const models::Model& plain);

// The same without the adapter: `weights` are those of the model that it was trained on.
std::unique_ptr<WeightSource> without_adapter(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                              const models::Model& plain);

// Reads all frozen weights; throws Error{usage} if their BaseHash is not the one that the source requires.
void verify_base(const WeightSource& weights, const models::Model& model);

}  // namespace strata::runtime
