#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/files/config.h"
#include "models/objective.h"

namespace strata::runtime {

// A model's folder may hold an output layer whose values differ from the token table that config.json ties it to. If
// so, sets tie_word_embeddings = false in `config`, with a remark, because transformers 5 leaves such layers untied
// (tie_weights). Does nothing if a file is missing or wrong: the code that reads it reports that. Without an objective,
// the model's own one counts.
void untie_what_differs(models::Config& config, const std::filesystem::path& folder,
                        std::optional<models::Objective> objective);

// The command that saves a copy of a decoder's folder with an output layer of its own, which transformers reads too.
std::string command_to_untie(const std::filesystem::path& folder);

}  // namespace strata::runtime
