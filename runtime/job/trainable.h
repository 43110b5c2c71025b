#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

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

// Throws Error{usage} if a pattern of training.freeze matches no tensor of the model (the nearest names are listed), or
// if nothing is left to train.
void require_freezable(const models::Model& model, std::span<const std::string> patterns);

// Throws Error{usage} if model.frozen_format is set and the model has no tensor that it applies to.
void require_quantised(const models::Model& model);

// For a model whose layers are cut into virtual shards: throws Error{usage} if some are quantised without an adapter on
// top, or cut within the 64 elements that share a scale.
void require_whole_scales(const models::Model& model, std::size_t shards, bool adapted);

// A sentence that says what full training trains in a model whose files hold matrices in 4 bits.
std::string note_of_quantised_files(const models::Model& model);

}  // namespace strata::runtime
