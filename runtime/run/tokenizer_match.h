#pragma once
#include <filesystem>
#include <span>

#include "models/files/config.h"
#include "models/model.h"
#include "runtime/checkpoint/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/recipe/recipe.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// Throws Error{usage} if the sidecar of one of `files` names another tokenizer than the one that the recipe's model
// comes with: to the model these tokens mean something else. Not compared: files whose sidecar names none, models
// without a tokenizer's file (presets), and with data.any_tokenizer.
void require_tokens_of_model(const Recipe& recipe, std::span<const TokenFile> files);
// The same of a classifier and the tokenizer at `where` that texts for it are to be tokenized by: compared with the one
// that its training's tokens were of (models::kTrainedOn), else with the one that it comes with.
void require_tokenizer_of_classifier(const ModelFolder& folder, const models::Config& config,
                                     const text::Tokenizer& tokenizer, const std::filesystem::path& where);
// Throws Error{usage} if one of `files` has tokens of a second type, and the model knows of types, but of one alone.
void require_types_of_model(const models::Model& model, std::span<const TokenFile> files);

}  // namespace strata::runtime
