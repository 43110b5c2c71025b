#pragma once
#include <filesystem>
#include <optional>

#include "models/adapter.h"
#include "models/model.h"

namespace strata::runtime {

// Throws Error{usage} if the adapter does not fit the model: target_modules, exclude_modules, modules_to_save,
// rank_pattern or alpha_pattern names something that no module is called (the nearest names are listed) or that is not
// a linear layer; the model lacks a layer; a rank exceeds a layer's width; a tied table would be trained under one of
// its two names; or nothing is left to train. `folder`: the adapter was read from peft's files, which may also list
// names of other families.
void require_adaptable(const models::Model& model, const models::Adapter& adapter,
                       const std::optional<std::filesystem::path>& folder);

}  // namespace strata::runtime
