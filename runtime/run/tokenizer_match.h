#pragma once
#include <filesystem>
#include <span>

#include "models/files/config.h"
#include "models/model.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/plan/job.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// Throws Error{usage} if a sidecar of `files` names a tokenizer other than the model's own, because its ids have other
// meanings for the model. Not compared: files whose sidecar names no tokenizer, models without a tokenizer file
// (presets), and runs with data.any_tokenizer.
void require_tokens_of_model(const Workload& workload, std::span<const TokenFile> files);
// The same for data.validation and, if the command trains, data.train. Opens the files, but reads no tokens.
void require_tokens_of_model(const Workload& workload, bool trains);
// The same for a classifier and the tokenizer at `where` for new texts. It is compared with the tokenizer of the tokens
// that the classifier was trained on (models::kTrainedOn) or, if that is unknown, with the model's own.
void require_tokenizer_of_classifier(const ModelFolder& folder, const models::Config& config,
                                     const text::Tokenizer& tokenizer, const std::filesystem::path& where);
// Throws Error{usage} if one of `files` has tokens of a second type but the model has only one.
void require_types_of_model(const models::Model& model, std::span<const TokenFile> files);

}  // namespace strata::runtime
