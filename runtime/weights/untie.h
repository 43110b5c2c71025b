#pragma once
#include <filesystem>
#include <optional>

#include "models/files/config.h"
#include "models/objective.h"

namespace strata::runtime {

// A model's own folder may hold an output layer beside the token table that config.json ties it to, with other values:
// then `config` gets tie_word_embeddings = false and a remark, as transformers 5 leaves the two untied (tie_weights).
// Does nothing where a file is missing or wrong, as whoever reads it says so. Without an objective the model's own
// counts.
void untie_what_differs(models::Config& config, const std::filesystem::path& folder,
                        std::optional<models::Objective> objective);

}  // namespace strata::runtime
