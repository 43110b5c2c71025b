#pragma once
#include <span>

#include "runtime/data/tokens.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if the sidecar of one of `files` names another tokenizer than the one that the recipe's model
// comes with: to the model these tokens mean something else. Not compared: files whose sidecar names none, models
// without a tokenizer's file (presets), and with data.any_tokenizer.
void require_tokens_of_model(const Recipe& recipe, std::span<const TokenFile> files);

}  // namespace strata::runtime
