#pragma once
#include <span>

#include "models/model.h"
#include "runtime/data/files/tokens.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if the sidecar of one of `files` names another tokenizer than the one that the recipe's model
// comes with: to the model these tokens mean something else. Not compared: files whose sidecar names none, models
// without a tokenizer's file (presets), and with data.any_tokenizer.
void require_tokens_of_model(const Recipe& recipe, std::span<const TokenFile> files);
// Throws Error{usage} if one of `files` has tokens of a second type, and the model has no more than one.
void require_types_of_model(const models::Model& model, std::span<const TokenFile> files);

}  // namespace strata::runtime
