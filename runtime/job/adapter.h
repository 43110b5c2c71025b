#pragma once
#include "models/adapter.h"
#include "models/model.h"

namespace strata::runtime {

// Throws Error{usage} if the adapter does not go with the model: a name of target_modules or modules_to_save that no
// module has (with those that are nearest), or a module that is no linear layer; a rank above a layer's width; a tied
// table that would be trained under one of its names; nothing left to train. of_file: it is one of peft's, whose names
// may be of other families, too.
void require_adaptable(const models::Model& model, const models::Adapter& adapter, bool of_file = false);

}  // namespace strata::runtime
