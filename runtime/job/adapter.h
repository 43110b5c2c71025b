#pragma once
#include "models/adapter.h"
#include "models/model.h"

namespace strata::runtime {

// Throws Error{usage} if the adapter does not fit the model: target_modules or modules_to_save names something that no
// module is called (the nearest names are listed) or that is not a linear layer; a rank exceeds a layer's width; a tied
// table would be trained under one of its two names; or nothing is left to train. `of_file`: the adapter was read from
// peft's files, which may also list names of other families.
void require_adaptable(const models::Model& model, const models::Adapter& adapter, bool of_file = false);

}  // namespace strata::runtime
